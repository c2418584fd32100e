// Package redisurl reads the URLs of Redis servers, and makes clients for them that send
// no command a second time.
package redisurl

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// QuietDriver keeps the driver from writing to the standard error, in a program of ours:
// what it would write is in the errors that it returns. It holds for the whole process.
func QuietDriver() { quiet.Do(logging.Disable) }

var quiet sync.Once

// A Server is what a URL says about the server, or servers.
type Server struct {
	// Addrs are the hosts and ports of servers, or of sentinels.
	Addrs []string
	// Cluster says that the servers are a cluster.
	Cluster bool
	// Master is the name that sentinels know the primary by, or nothing.
	Master string
	// Timeout bounds connecting and each exchange, beside the deadlines of contexts.
	Timeout time.Duration

	username, password string
	sentinels          struct{ username, password string }
	db                 int
	tls                *tls.Config
}

// The parameters of a URL with sentinels that ask for a password themselves. [HasParameter]
// reports that a URL may have them.
const (
	SentinelUsername = "sentinel_username"
	SentinelPassword = "sentinel_password"
)

// HasParameter reports whether this package reads a parameter of URLs.
func HasParameter(name string) bool { return name == SentinelUsername || name == SentinelPassword }

// The schemes of URLs. [Plain] takes the mark of TLS off.
const (
	Single   = "redis"
	Cluster  = "redis+cluster"
	Sentinel = "redis+sentinel"
)

var errURL = errors.New("a Redis URL is redis://user:password@host:port/db, redis+cluster://host:port,host:port or redis+sentinel://host:port,host:port/MASTER; rediss, rediss+cluster and rediss+sentinel are the same with TLS")

// Plain returns a scheme without the mark of TLS, and whether it had one.
func Plain(scheme string) (plain string, secure bool) {
	if rest, ok := strings.CutPrefix(scheme, "rediss"); ok {
		return "redis" + rest, true
	}
	return scheme, false
}

// Parse parses the URL of a server. Its errors do not quote the URL, which may have a
// password in it.
func Parse(text string) (*Server, error) {
	scheme, rest, ok := strings.Cut(text, "://")
	scheme, secure := Plain(scheme)
	if !ok || scheme != Single && scheme != Cluster && scheme != Sentinel {
		return nil, fmt.Errorf("the store's URL has another scheme: %w", errURL)
	}
	// Package net/url takes one host only.
	authority, path, _ := strings.Cut(rest, "/")
	path, query, _ := strings.Cut(path, "?")
	authority, more, _ := strings.Cut(authority, "?")
	if query == "" {
		query = more
	}
	s := &Server{Cluster: scheme == Cluster}
	hosts := authority
	if at := strings.LastIndex(authority, "@"); at >= 0 {
		hosts = authority[at+1:]
		u, err := url.Parse("redis://" + authority[:at] + "@host")
		if err != nil || u.User == nil {
			return nil, fmt.Errorf("user and password cannot be read; characters such as @ : / # %% in a password are written as %%40 and so on: %w", errURL)
		}
		s.username = u.User.Username()
		s.password, _ = u.User.Password()
	}
	port := "6379"
	if scheme == Sentinel {
		port = "26379"
	}
	for host := range strings.SplitSeq(hosts, ",") {
		addr, err := address(host, port)
		if err != nil {
			return nil, err
		}
		s.Addrs = append(s.Addrs, addr)
	}
	if scheme == Single && len(s.Addrs) > 1 {
		return nil, fmt.Errorf("redis:// takes one host; several are a cluster or sentinels: %w", errURL)
	}
	if secure {
		name, _, _ := net.SplitHostPort(s.Addrs[0])
		s.tls = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: name}
		if len(s.Addrs) > 1 {
			s.tls.ServerName = "" // the driver takes the name of each host
		}
	}
	return s, s.parsePath(scheme, path, query)
}

func address(host, port string) (string, error) {
	if host == "" {
		return "", fmt.Errorf("a host is missing: %w", errURL)
	}
	u, err := url.Parse("redis://" + host)
	if err != nil || u.Hostname() == "" {
		return "", fmt.Errorf("a host cannot be read: %w", errURL)
	}
	if p := u.Port(); p != "" {
		port = p
	}
	return net.JoinHostPort(u.Hostname(), port), nil
}

func (s *Server) parsePath(scheme, path, query string) error {
	parameters, err := url.ParseQuery(query)
	if err != nil {
		return errors.New("the parameters of a Redis URL cannot be read; they are ?name=value&name=value, and characters such as & % + in a value are written as %26 and so on")
	}
	for name, values := range parameters {
		switch {
		case !HasParameter(name):
			return errors.New("the store's URL has a parameter that is not known here")
		case scheme != Sentinel:
			return fmt.Errorf("%s is for sentinels, and the URL has none: %w", name, errURL)
		case name == SentinelUsername:
			s.sentinels.username = values[0]
		default:
			s.sentinels.password = values[0]
		}
	}
	switch {
	case scheme == Cluster && path != "" && path != "0":
		return fmt.Errorf("a cluster has one database, and no number behind the hosts: %w", errURL)
	case scheme == Sentinel:
		if s.Master, _, _ = strings.Cut(path, "/"); s.Master == "" {
			return fmt.Errorf("the name of the primary is missing behind the sentinels: %w", errURL)
		}
	case scheme == Single && path != "":
		n, err := strconv.Atoi(path)
		if err != nil || n < 0 {
			return fmt.Errorf("what follows the host is the number of a database: %w", errURL)
		}
		s.db = n
	}
	return nil
}

// connections is how many connections a node has at most. Two are for the pipelines of
// steps, the others for lists, purges and questions.
const connections = 16

// Client returns a client of the only server, or of the one that sentinels name. It sends
// no command a second time.
func (s *Server) Client(connected func(context.Context, *redis.Conn) error) *redis.Client {
	if s.Master == "" {
		return s.ClientAt(s.Addrs[0], connected)
	}
	return redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: s.Master, SentinelAddrs: s.Addrs, SentinelUsername: s.sentinels.username, SentinelPassword: s.sentinels.password,
		Username: s.username, Password: s.password, DB: s.db, TLSConfig: s.tls,
		Protocol: 2, MaxRetries: -1, DialerRetries: 1, DialTimeout: s.Timeout, ReadTimeout: s.Timeout, WriteTimeout: s.Timeout,
		ContextTimeoutEnabled: true, PoolSize: connections, PoolTimeout: s.Timeout, OnConnect: connected, DisableIdentity: true,
	})
}

// ClientAt returns a client of the server at an address.
func (s *Server) ClientAt(addr string, connected func(context.Context, *redis.Conn) error) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, Username: s.username, Password: s.password, DB: s.db, TLSConfig: s.tls,
		Protocol: 2, MaxRetries: -1, DialerRetries: 1, DialTimeout: s.Timeout, ReadTimeout: s.Timeout, WriteTimeout: s.Timeout,
		ContextTimeoutEnabled: true, PoolSize: connections, PoolTimeout: s.Timeout, OnConnect: connected, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// ClusterClient returns a client of all servers of a cluster. Unlike those of [Server.ClientAt]
// it follows the slots, and for that sends a command again that a server has redirected.
func (s *Server) ClusterClient() *redis.ClusterClient {
	return redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: s.Addrs, Username: s.username, Password: s.password, TLSConfig: s.tls, Protocol: 2,
		DialTimeout: s.Timeout, ReadTimeout: s.Timeout, WriteTimeout: s.Timeout,
		ContextTimeoutEnabled: true, PoolSize: connections, PoolTimeout: s.Timeout, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}
