package redistier

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/groupcommit"
	"github.com/retrysafe/retrysafe/store/storekit"
)

// An entry is 'E', when the store below was asked for the record, by the clock of the Redis
// server, the record's ReadAt (16 digits each, microseconds), and the record. A mark is 'M'
// and when the key was dropped.
const entryHead = 33

const (
	// markLife is how long a mark stays. A record that is stored is younger than maxFlight,
	// which is less.
	markLife  = time.Minute
	maxFlight = 30 * time.Second
	// pauseAfterError is how long Redis is left out after an error.
	pauseAfterError = time.Second
)

var (
	getScript = redis.NewScript(`local t = redis.call('TIME')
return {string.format('%016.0f', t[1] * 1000000 + t[2]), redis.call('GET', KEYS[1])}`)

	// A record is stored unless the key was dropped after the record was asked for, or a
	// record that was asked for later is there. ARGV: when it was asked for, the entry, how
	// long it lives in milliseconds, how long it may have been under way in microseconds.
	putScript = redis.NewScript(`local t = redis.call('TIME')
local asked = tonumber(ARGV[1])
if t[1] * 1000000 + t[2] - asked > tonumber(ARGV[4]) then return 0 end
local v = redis.call('GETRANGE', KEYS[1], 0, 16)
if v ~= '' and tonumber(string.sub(v, 2)) >= asked then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1`)

	dropScript = redis.NewScript(`local t = redis.call('TIME')
redis.call('SET', KEYS[1], 'M' .. string.format('%016.0f', t[1] * 1000000 + t[2]), 'PX', ARGV[1])
return 1`)
)

// name returns the name of the key of a record: a hash, so that it is no longer than needed
// and holds no text of the key.
func (s *Store) name(ref retrysafe.Ref) string {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(ref.Scope)))
	sum := sha256.Sum256(append(append(b, ref.Scope...), ref.Key...))
	return s.opts.Prefix + ":" + base64.RawURLEncoding.EncodeToString(sum[:24])
}

// get is a question for a record.
type get struct{ name string }

// found is the reply: the time of the server, zero if it is not known, and the entry.
type found struct {
	now   int64
	entry string
}

// usable reports whether Redis may be asked, and since when what it has is trusted.
func (s *Store) usable() (since int64, ok bool) {
	if time.Now().UnixNano() < s.pausedUntil.Load() {
		return 0, false
	}
	f := s.follow.Load()
	if f == nil {
		return 0, true
	}
	return f.since, f.since != 0 && time.Now().Before(f.until)
}

// get returns the record that Redis has of a key, or when it was asked for one: then the
// store below may be asked and its answer stored. Asked is zero if it must not be stored.
func (s *Store) get(ctx context.Context, ref retrysafe.Ref) (r *retrysafe.Record, asked int64) {
	since, ok := s.usable()
	if !ok || ctx.Err() != nil {
		s.misses.Add(1)
		return nil, 0
	}
	v, err := s.gets.Do(ctx, get{s.name(ref)})
	after, ok := s.usable() // the question may have made a connection to another server
	if err != nil || !ok {
		s.misses.Add(1)
		return nil, 0
	}
	if r := s.decode(ref, v, max(since, after)); r != nil {
		s.hits.Add(1)
		return r, 0
	}
	s.misses.Add(1)
	return nil, v.now
}

// sendGets asks for some records in one round trip.
func (s *Store) sendGets(ctx context.Context, some []get) []groupcommit.Answer[found] {
	answers := make([]groupcommit.Answer[found], len(some))
	ctx, cancel := context.WithTimeout(ctx, s.opts.Timeout)
	defer cancel()
	pipe := s.client.Pipeline()
	commands := make([]*redis.Cmd, len(some))
	for i, g := range some {
		commands[i] = getScript.EvalSha(ctx, pipe, []string{g.name})
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, c := range commands {
		err := c.Err()
		if redis.HasErrorPrefix(err, "NOSCRIPT") {
			c = getScript.Eval(ctx, s.client, []string{some[i].name})
			err = c.Err()
		}
		if err != nil {
			s.pause()
			answers[i].Err = err
			continue
		}
		answers[i].Value, answers[i].Err = parseFound(c.Val())
	}
	return answers
}

var errReply = errors.New("redistier: the reply has another form")

func parseFound(v any) (found, error) {
	list, _ := v.([]any)
	if len(list) == 0 {
		return found{}, errReply
	}
	digits, _ := list[0].(string)
	now, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return found{}, errReply
	}
	f := found{now: now}
	if len(list) > 1 {
		f.entry, _ = list[1].(string) // nil if there is none
	}
	return f, nil
}

// decode returns the record in an entry, if it may be used.
func (s *Store) decode(ref retrysafe.Ref, v found, since int64) *retrysafe.Record {
	if len(v.entry) < entryHead || v.entry[0] != 'E' {
		return nil
	}
	asked, bad := strconv.ParseInt(v.entry[1:17], 10, 64)
	readAt, worse := strconv.ParseInt(v.entry[17:33], 10, 64)
	r, err := storekit.DecodeRecord([]byte(v.entry[entryHead:]))
	if bad != nil || worse != nil || err != nil || r.Ref != ref || !keepable(&r) || asked < since {
		return nil
	}
	age := time.Duration(v.now-asked) * time.Microsecond
	r.ReadAt = time.UnixMicro(readAt).UTC()
	if age < 0 || age >= s.trust(&r) {
		return nil
	}
	r.ReadAt = r.ReadAt.Add(age)
	return &r
}

// keepable reports whether a record may be kept: it is completed and readable.
func keepable(r *retrysafe.Record) bool {
	return r.State == retrysafe.StateCompleted && r.Readable()
}

// trust returns how long a record may be used, counted from when the store below was asked
// for it: until it is due, less a thousandth for clocks that drift, or until MaxAge.
func (s *Store) trust(r *retrysafe.Record) time.Duration {
	left := r.Deadline.Sub(r.ReadAt)
	return min(s.opts.MaxAge, left-left/1000)
}

// put stores a record that the store below has returned after Redis was asked.
func (s *Store) put(ctx context.Context, r *retrysafe.Record, asked int64) {
	if asked == 0 || !keepable(r) {
		return
	}
	life := s.trust(r).Milliseconds()
	if life <= 0 {
		return
	}
	entry := make([]byte, 0, 512)
	entry = append(entry, 'E')
	entry = appendDigits(entry, asked)
	entry = appendDigits(entry, r.ReadAt.UnixMicro())
	entry = storekit.AppendRecord(entry, r)
	if len(entry) > s.opts.MaxBytes {
		return
	}
	s.run(ctx, putScript, r.Ref, strconv.FormatInt(asked, 10), entry, life, maxFlight.Microseconds())
}

func appendDigits(b []byte, n int64) []byte {
	digits := strconv.FormatInt(n, 10)
	for range 16 - len(digits) {
		b = append(b, '0')
	}
	return append(b, digits...)
}

// drop drops a record, and reports whether Redis has confirmed it.
func (s *Store) drop(ctx context.Context, ref retrysafe.Ref) bool {
	return s.run(ctx, dropScript, ref, markLife.Milliseconds())
}

// run runs a script on the key of a record. It goes on if ctx ends, for as long as Timeout.
func (s *Store) run(ctx context.Context, script *redis.Script, ref retrysafe.Ref, args ...any) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opts.Timeout)
	defer cancel()
	if err := script.Run(ctx, s.client, []string{s.name(ref)}, args...).Err(); err != nil {
		s.pause()
		return false
	}
	return true
}

// pause leaves Redis out for a while.
func (s *Store) pause() { s.pausedUntil.Store(time.Now().Add(pauseAfterError).UnixNano()) }
