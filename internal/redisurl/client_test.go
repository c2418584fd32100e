package redisurl_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/retrysafe/retrysafe/internal/redisurl"
)

// options are what a client of any kind has of a URL and of a server's settings.
type options struct {
	addr, username, password, serverName     string
	secure                                   bool
	db, retries, dials, pool, protocol       int
	dialing, reading, writing, waitsForAConn time.Duration
	byContext, silent                        bool
}

const timeout = 1234 * time.Millisecond

// common are the options that do not depend on the URL.
func common(o options) options {
	o.dialing, o.reading, o.writing, o.waitsForAConn = timeout, timeout, timeout, timeout
	o.pool, o.protocol, o.byContext, o.silent = 16, 2, true, true
	return o
}

func serverName(c *tls.Config) (name string, secure bool) {
	if c == nil {
		return "", false
	}
	return c.ServerName, c.MinVersion == tls.VersionTLS12
}

func optionsOf(o *redis.Options) options {
	name, secure := serverName(o.TLSConfig)
	return options{
		addr: o.Addr, username: o.Username, password: o.Password, serverName: name, secure: secure, db: o.DB,
		retries: o.MaxRetries, dials: o.DialerRetries, pool: o.PoolSize, protocol: o.Protocol,
		dialing: o.DialTimeout, reading: o.ReadTimeout, writing: o.WriteTimeout, waitsForAConn: o.PoolTimeout,
		byContext: o.ContextTimeoutEnabled,
		silent:    o.DisableIdentity && o.MaintNotificationsConfig != nil && o.MaintNotificationsConfig.Mode == maintnotifications.ModeDisabled,
	}
}

// A client has all that its URL says, its server's time limit, and sends nothing twice.
func TestClientsHaveWhatTheURLSays(t *testing.T) {
	t.Parallel()
	const sentinels = "FailoverClient" // by which the driver calls a primary that sentinels name
	for text, want := range map[string]options{
		"redis://h":                      {addr: "h:6379"},
		"redis://h/0":                    {addr: "h:6379"},
		"redis://me@h/3":                 {addr: "h:6379", username: "me", db: 3},
		"redis://:p%40ss%3Aa%2Fb@h:7000": {addr: "h:7000", password: "p@ss:a/b"},
		"rediss://me:p%40ss@h:7000/15":   {addr: "h:7000", username: "me", password: "p@ss", db: 15, secure: true, serverName: "h"},
		"rediss://[::1]:7000":            {addr: "[::1]:7000", secure: true, serverName: "::1"},
		"redis+sentinel://me:pw@a,b/pay": {addr: sentinels, username: "me", password: "pw"},
		"redis+sentinel://me:pw@a,b/pay?sentinel_username=x&sentinel_password=y": {addr: sentinels, username: "me", password: "pw"},
		"rediss+sentinel://me:pw@a,b/pay":                                        {addr: sentinels, username: "me", password: "pw", secure: true},
	} {
		s, err := redisurl.Parse(text)
		if err != nil {
			t.Errorf("Parse(%q): %v", text, err)
			continue
		}
		s.Timeout = timeout
		greeting := errors.New("the greeting")
		c := s.Client(func(context.Context, *redis.Conn) error { return greeting })
		o := c.Options()
		want.dials = 1
		if got := optionsOf(o); got != common(want) {
			t.Errorf("the client of %q has\n%+v, want\n%+v", text, got, common(want))
		}
		if o.OnConnect == nil || !errors.Is(o.OnConnect(t.Context(), nil), greeting) {
			t.Errorf("the client of %q does not greet", text)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestClusterClientsHaveWhatTheURLSays(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]options{
		"redis+cluster://a,b:2":          {addr: "a:6379 b:2"},
		"redis+cluster://me:pw@a,b:2/0":  {addr: "a:6379 b:2", username: "me", password: "pw"},
		"rediss+cluster://me:pw@a,b:2":   {addr: "a:6379 b:2", username: "me", password: "pw", secure: true},
		"rediss+cluster://me:pw@one:7/0": {addr: "one:7", username: "me", password: "pw", secure: true, serverName: "one"},
	} {
		s, err := redisurl.Parse(text)
		if err != nil {
			t.Errorf("Parse(%q): %v", text, err)
			continue
		}
		s.Timeout = timeout
		c := s.ClusterClient()
		o := c.Options()
		name, secure := serverName(o.TLSConfig)
		got := options{
			addr: strings.Join(o.Addrs, " "), username: o.Username, password: o.Password, serverName: name, secure: secure,
			pool: o.PoolSize, protocol: o.Protocol, dialing: o.DialTimeout, reading: o.ReadTimeout, writing: o.WriteTimeout,
			waitsForAConn: o.PoolTimeout, byContext: o.ContextTimeoutEnabled,
			silent: o.DisableIdentity && o.MaintNotificationsConfig != nil && o.MaintNotificationsConfig.Mode == maintnotifications.ModeDisabled,
		}
		if got != common(want) {
			t.Errorf("the client of %q has\n%+v, want\n%+v", text, got, common(want))
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}

		// A client of one of its nodes has the same, and the address that it was asked for.
		one := s.ClientAt("node:1", nil)
		want.addr, want.dials = "node:1", 1
		if got := optionsOf(one.Options()); got != common(want) {
			t.Errorf("the client of a node of %q has\n%+v, want\n%+v", text, got, common(want))
		}
		if err := one.Close(); err != nil {
			t.Error(err)
		}
	}
}

// The sentinels are asked, with the password of their own, for the primary that the URL names.
func TestSentinelsAreAskedForThePrimaryOfTheURL(t *testing.T) {
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan string, 100)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				close(asked)
				return
			}
			sentinel(c, asked)
		}
	})
	t.Cleanup(all.Wait)
	s, err := redisurl.Parse("redis+sentinel://me:pw@" + l.Addr().String() + "/pay?sentinel_username=x&sentinel_password=y")
	if err != nil {
		t.Fatal(err)
	}
	s.Timeout = time.Minute
	c := s.Client(nil)
	if err := c.Ping(t.Context()).Err(); err == nil {
		t.Error("a primary has answered that no sentinel knows")
	}
	if err := errors.Join(c.Close(), l.Close()); err != nil {
		t.Error(err)
	}
	var got []string
	for command := range asked {
		got = append(got, command)
	}
	for _, want := range []string{"auth x y", "sentinel get-master-addr-by-name pay"} {
		if !slices.Contains(got, want) {
			t.Errorf("the sentinel was asked %q, and not %q", got, want)
		}
	}
}

// sentinel tells the commands of a connection. It knows no primary.
func sentinel(c net.Conn, asked chan<- string) {
	defer c.Close()
	for in := bufio.NewReader(c); ; {
		var args int
		if _, err := fmt.Fscanf(in, "*%d\r\n", &args); err != nil {
			return
		}
		words := make([]string, args)
		for i := range words {
			var size int
			if _, err := fmt.Fscanf(in, "$%d\r\n%s\r\n", &size, &words[i]); err != nil {
				return
			}
		}
		asked <- strings.Join(words, " ")
		reply := "+OK\r\n"
		switch words[0] {
		case "hello":
			reply = "-ERR unknown command\r\n"
		case "sentinel":
			reply = "*-1\r\n"
		}
		if _, err := io.WriteString(c, reply); err != nil {
			return
		}
	}
}
