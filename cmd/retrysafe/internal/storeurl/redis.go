package storeurl

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/retrysafe/retrysafe/internal/redisurl"
	"github.com/retrysafe/retrysafe/store/redisstore"
)

// Redis is the kind of a store in Redis or Valkey: one server, a primary behind sentinels,
// or a cluster.
const Redis = "redis"

// isRedis reports whether a scheme is one of Redis.
func isRedis(scheme string) bool {
	plain, _ := redisurl.Plain(scheme)
	return plain == redisurl.Single || plain == redisurl.Cluster || plain == redisurl.Sentinel
}

// parseRedis parses the URL of a Redis server, with its optional parameters.
func parseRedis(text string) (Address, error) {
	address, query, _ := strings.Cut(text, "?")
	a := Address{Kind: Redis, URL: address}
	q, err := url.ParseQuery(query)
	if err != nil {
		return Address{}, errors.New("the parameters of a Redis URL cannot be read; they are ?name=value&name=value, and characters such as & % + in a value are written as %26 and so on")
	}
	for name, values := range q {
		if redisurl.HasParameter(name) {
			continue
		}
		if err := a.Redis.set(name, values[0]); err != nil {
			return Address{}, err
		}
		q.Del(name)
	}
	if len(q) > 0 {
		a.URL += "?" + q.Encode()
	}
	if _, err := redisurl.Parse(a.URL); err != nil {
		return Address{}, err
	}
	return a, nil
}

// A RedisAddress has the parameters of a Redis URL. See [redisstore.Options].
type RedisAddress struct {
	Prefix                    string
	Replicas                  int
	MustExist, AcceptFailover bool
}

func (r *RedisAddress) set(name, value string) (err error) {
	switch name {
	case "prefix":
		r.Prefix = value
	case "replicas":
		if r.Replicas, err = strconv.Atoi(value); err != nil || r.Replicas < 0 {
			return errors.New("replicas in a Redis URL is the number of replicas that must have confirmed a step: replicas=1")
		}
	case "existing":
		if r.MustExist, err = strconv.ParseBool(value); err != nil {
			return errors.New("existing in a Redis URL is true or false; true refuses a server that has no data of the store")
		}
	case "failover":
		if value != "accept" {
			return errors.New("failover in a Redis URL is accept, or left out: then a promoted replica is refused")
		}
		r.AcceptFailover = true
	default:
		return fmt.Errorf("a Redis URL takes prefix, replicas, existing and failover behind the question mark, with sentinels sentinel_username and sentinel_password too, and not %q", name)
	}
	return nil
}

// openRedis opens the store. With SkipMigrations a server without data of the store is
// refused, not prepared.
func openRedis(ctx context.Context, a *Address, opts *Options) (*Opened, error) {
	redisurl.QuietDriver()
	s, err := redisstore.Open(ctx, a.URL, &redisstore.Options{
		Prefix: a.Redis.Prefix, MinReplicas: a.Redis.Replicas, AcceptFailover: a.Redis.AcceptFailover,
		MustExist: a.Redis.MustExist || opts.SkipMigrations, Moving: opts.Moving,
	})
	if err != nil {
		return nil, err
	}
	return &Opened{Store: s, Kind: Redis, Shared: true, closer: s}, nil
}

// redactRedis returns the URL of a Redis server without its passwords. Package net/url does
// not take several hosts.
func redactRedis(address string) string {
	if _, err := parseRedis(address); err != nil {
		return unreadable
	}
	address, query, _ := strings.Cut(address, "?")
	if q, _ := url.ParseQuery(query); q.Has(redisurl.SentinelPassword) {
		q.Set(redisurl.SentinelPassword, "xxxxx")
		query = q.Encode()
	}
	scheme, rest, _ := strings.Cut(address, "://")
	authority, path, slash := strings.Cut(rest, "/")
	if at := strings.LastIndex(authority, "@"); at >= 0 {
		user, _, hasPassword := strings.Cut(authority[:at], ":")
		if hasPassword {
			user += ":xxxxx"
		}
		authority = user + authority[at:]
	}
	if slash {
		authority += "/" + path
	}
	if query != "" {
		authority += "?" + query
	}
	return scheme + "://" + authority
}
