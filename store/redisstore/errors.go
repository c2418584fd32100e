package redisstore

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/retrysafe/retrysafe"
)

var (
	// ErrClosed says that the store is closed. The step was not sent.
	ErrClosed = errors.New("redisstore: the store is closed")
	// ErrDataLost says that the server has lost acknowledged writes, or may have: its data
	// is gone or older than what this store has seen, or another server has taken over.
	// Every step is refused until the store is opened again. Keys that were lost can run a
	// second time then, so find out first what was lost.
	ErrDataLost = errors.New("redisstore: acknowledged keys may be lost")
	// ErrNoData says that the server has no data of the prefix, and that there should be
	// some ([Options.MustExist]). It is an ErrDataLost too.
	ErrNoData = fmt.Errorf("%w: the server has no data of the store", ErrDataLost)
)

var (
	errReplicas = errors.New("redisstore: too few replicas have confirmed the step (MinReplicas)")
	errReplica  = errors.New("redisstore: the server is a replica; name the primary, all servers of the cluster, or the sentinels")
)

// The kinds of errors that a server replies with, by the first word of their text.
const (
	noScript  = "NOSCRIPT"
	moved     = "MOVED"
	ask       = "ASK"
	tryAgain  = "TRYAGAIN"
	ownError  = "RETRYSAFE"
	outOfRoom = "OOM"

	// otherServer is an ownError: the bucket was written to by another server before.
	otherServer = "server"
	// closedByMove is an ownError: a run of a move has closed the bucket. Its number follows.
	closedByMove = "closed"
	// overtaken is an ownError: another run of a move has replaced the one whose step it is.
	overtaken = "overtaken"
)

// ownReason returns what one of the store's own errors says, and what follows.
func ownReason(err error) (reason, more string) {
	_, text, _ := strings.Cut(err.Error(), ownError+" ")
	f := append(strings.Fields(text), "", "")
	return f[0], f[1]
}

// kindOf returns the first word of an error that the server replied with, or nothing.
func kindOf(err error) string {
	var reply redis.Error
	if !errors.As(err, &reply) || errors.Is(err, redis.Nil) {
		return ""
	}
	text := reply.Error()
	// Redis 6.2 puts the text of an error inside of a script behind a name of its own.
	if _, inner, ok := strings.Cut(text, "@user_script: "); ok && strings.HasPrefix(text, "ERR ") {
		if _, after, ok := strings.Cut(inner, ": "); ok {
			inner = after
		}
		text = strings.TrimPrefix(inner, "-")
	}
	kind, _, _ := strings.Cut(text, " ")
	return kind
}

// explain adds a hint to errors that the user can do something about.
func explain(err error) error {
	var hint string
	var name *net.DNSError
	switch kind := kindOf(err); {
	case err == nil:
		return nil
	case (kind == "NOAUTH" || kind == "WRONGPASS") && strings.Contains(err.Error(), "all sentinels"):
		hint = "check sentinel_username and sentinel_password in the store's URL: the user and the password in front of the hosts are those of the primary"
	case kind == "NOAUTH", kind == "WRONGPASS":
		hint = "check user and password in the store's URL"
	case strings.Contains(err.Error(), "all sentinels") && errors.Is(err, redis.Nil):
		hint = "the sentinels know no primary of the name behind the hosts in the store's URL"
	case kind == "NOPERM", strings.Contains(err.Error(), "can't run this command"): // inside of a script
		hint = "the user may not run a command that the store needs: allow it +@scripting +@read +@write +time +info +wait +config|get on the keys of the prefix"
	case kind == "READONLY":
		hint = "the server is a replica; name all servers of the cluster, or the sentinels, in the store's URL"
	case kind == "LOADING":
		hint = "the server reads its data from disk and will be ready soon"
	case kind == "MISCONF":
		hint = "the server cannot write to its disk"
	case kind == moved, kind == ask, kind == tryAgain:
		hint = "the slot is moving to another server; steps on its records are refused until it has"
	case kind == "CLUSTERDOWN":
		hint = "a part of the cluster has no primary"
	case errors.As(err, &name):
		hint = "the name does not resolve (DNS); check the host in the store's URL, and the resolver"
	case errors.Is(err, syscall.ECONNREFUSED):
		hint = "is the server running, and is this its address?"
	default:
		return err
	}
	return fmt.Errorf("redisstore: %w (%s)", err, hint)
}

// errFull is for a server that has reached its maxmemory: nothing was stored.
func errFull(err error) error {
	return fmt.Errorf("%w: the server has reached its maxmemory: %w", retrysafe.ErrFull, err)
}
