package testservers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// StandbyOptions are what may differ between standbys. The zero value is an
// asynchronous standby that reaches its primary directly.
type StandbyOptions struct {
	// Synchronous makes the primary wait for this standby at every commit, from
	// the moment it is up.
	Synchronous bool
	// Via is the address under which the standby reaches its primary, such as
	// that of a proxy. Empty is the primary's own.
	Via string
	// Settings come after those that the primary was started with.
	Settings map[string]string
	// Env is as in PostgresOptions; it does not come from the primary.
	Env []string
}

// A Standby is a server that follows another one by streaming replication, and
// answers queries meanwhile. It lives where its primary does, on disk or in
// memory. After Promote it is a primary like any other.
type Standby struct {
	*Postgres
	primary  *Postgres
	conninfo string
}

// Standby copies the server and returns when the copy follows it; with
// Synchronous, when a commit has been seen to wait for it. A primary goes on
// waiting for a synchronous standby that is down, for ever: that is the point of
// one. Configure("synchronous_standby_names", "") ends it.
func (p *Postgres) Standby(ctx context.Context, opts *StandbyOptions) (*Standby, error) {
	if opts == nil {
		opts = &StandbyOptions{}
	}
	via := opts.Via
	if via == "" {
		via = p.Addr()
	}
	host, port, err := net.SplitHostPort(via)
	if err != nil {
		return nil, fmt.Errorf("start standby: %w", err)
	}
	s := &Standby{primary: p}
	// What the primary was started with counts here too. Some settings, such as
	// max_connections, must not be lower than there.
	settings := map[string]string{}
	maps.Copy(settings, p.options.Settings)
	maps.Copy(settings, opts.Settings)
	s.Postgres, err = createPostgres(ctx, "standby", PostgresOptions{Version: p.options.Version, InMemory: p.options.InMemory, Settings: settings, Env: opts.Env},
		func(ctx context.Context, bin, data string) error {
			s.conninfo = fmt.Sprintf("host=%s port=%s user=%s application_name=%s", host, port, superuser, standbyName(data))
			return p.baseBackup(ctx, bin, data, s.conninfo)
		})
	if err != nil {
		return nil, err
	}
	if err := s.follow(ctx, opts.Synchronous); err != nil {
		return nil, errors.Join(s.withLog("follow "+p.name+" from", err), s.Close())
	}
	return s, nil
}

// baseBackup fills data with a copy of the running server that will follow it.
func (p *Postgres) baseBackup(ctx context.Context, bin, data, conninfo string) error {
	if err := p.copyTo(ctx, bin, data); err != nil {
		return err
	}
	copied := &Postgres{process: &process{dir: filepath.Dir(data)}}
	// The last line for a name wins. A primary's standbys are not the copy's: it
	// would wait for them after its promotion.
	lines := confLines(map[string]string{"primary_conninfo": conninfo, "synchronous_standby_names": ""})
	return errors.Join(
		copied.writeData("postgresql.auto.conf", lines, os.O_APPEND),
		copied.writeData("standby.signal", "", os.O_TRUNC))
}

// copyTo fills data with a copy of the running server.
func (p *Postgres) copyTo(ctx context.Context, bin, data string) error {
	if !hasAll(bin, "pg_basebackup") {
		return p.copyRunning(ctx, data)
	}
	return run(ctx, filepath.Join(bin, "pg_basebackup"), "-D", data, "-h", p.dir, "-p", strconv.Itoa(p.port),
		"-U", superuser, "--wal-method=stream", "--checkpoint=fast", "--no-sync")
}

// follow returns when the primary streams to the standby.
func (s *Standby) follow(ctx context.Context, synchronous bool) error {
	if err := s.awaitStreaming(ctx); err != nil {
		return err
	}
	if !synchronous {
		return nil
	}
	names, err := query[string](ctx, s.primary, "SELECT current_setting('synchronous_standby_names')")
	if err != nil {
		return err
	}
	if err := s.primary.Configure(ctx, "synchronous_standby_names", addStandby(names, s.id())); err != nil {
		return err
	}
	return s.awaitWaiting(ctx)
}

func (s *Standby) awaitStreaming(ctx context.Context) error {
	return s.primary.pollSQL(ctx,
		"SELECT EXISTS (SELECT FROM pg_stat_replication WHERE application_name = $1 AND state = 'streaming')", s.id())
}

// awaitWaiting returns when a commit on the primary has been seen to wait for
// this standby. The primary's own word that it is synchronous comes a moment too
// early: the walsender says it, while commits go by a flag that the checkpointer
// sets later. So the standby is held for some milliseconds, to see a commit hang.
func (s *Standby) awaitWaiting(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := s.Pause(); err != nil {
		return err
	}
	err := s.primary.withConn(ctx, func(ctx context.Context, probe *pgx.Conn) error {
		for {
			committed := make(chan error, 1)
			go func() {
				defer close(committed)
				_, err := probe.Exec(ctx, "SELECT pg_logical_emit_message(true, 'probe', '')")
				committed <- err
			}()
			waits, err := s.primary.waitsForStandby(ctx, probe.PgConn().PID(), committed)
			switch {
			case waits:
				return errors.Join(s.Continue(), <-committed)
			case err != nil:
				cancel()
				<-committed
				return err
			}
		}
	})
	return errors.Join(err, s.Continue())
}

// waitsForStandby watches a backend until it waits for a standby, true, or its
// commit is through, false.
func (p *Postgres) waitsForStandby(ctx context.Context, pid uint32, committed <-chan error) (waits bool, err error) {
	err = p.withConn(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return poll(ctx, func() (bool, error) {
			select {
			case err := <-committed:
				return true, err
			default:
			}
			err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'SyncRep')", pid).Scan(&waits)
			return waits, err
		})
	})
	return waits, err
}

// CatchUp returns when the standby has replayed all that the primary had written
// when it was called.
func (s *Standby) CatchUp(ctx context.Context) error {
	target, err := query[string](ctx, s.primary, "SELECT pg_current_wal_lsn()::text")
	if err == nil {
		err = s.pollSQL(ctx, "SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn", target)
	}
	if err != nil {
		return s.errorf("catch up", err)
	}
	return nil
}

// Detach cuts the link to the primary. When it returns, nothing that the primary
// commits reaches the standby, until Attach.
func (s *Standby) Detach(ctx context.Context) error {
	// Pausing the standby would not do: what the primary sends goes into socket
	// buffers and arrives later.
	err := s.Configure(ctx, "primary_conninfo", "")
	if err == nil {
		err = s.pollSQL(ctx, "SELECT NOT EXISTS (SELECT FROM pg_stat_wal_receiver)")
	}
	if err == nil && s.primary.running() {
		err = s.primary.pollSQL(ctx, "SELECT NOT EXISTS (SELECT FROM pg_stat_replication WHERE application_name = $1)", s.id())
	}
	if err != nil {
		return s.errorf("detach", err)
	}
	return nil
}

// Attach ends a Detach. It returns when the primary streams to the standby again.
func (s *Standby) Attach(ctx context.Context) error {
	err := s.Configure(ctx, "primary_conninfo", s.conninfo)
	if err == nil {
		err = s.awaitStreaming(ctx)
	}
	if err != nil {
		return s.errorf("attach", err)
	}
	return nil
}

// Promote makes the standby a primary and returns when it accepts writes. It
// does not fence the old one: kill that first, as a failover does.
func (s *Standby) Promote(ctx context.Context) error {
	// Waiting inside pg_promote would look only ten times a second.
	err := s.exec(ctx, "SELECT pg_promote(wait => false)")
	if err == nil {
		err = s.pollSQL(ctx, "SELECT NOT pg_is_in_recovery()")
	}
	if err != nil {
		return s.withLog("promote", err)
	}
	return nil
}

// id is the name by which the primary knows the standby.
func (s *Standby) id() string { return standbyName(s.data()) }

// standbyName is unique in this process and needs no quotes anywhere.
func standbyName(data string) string {
	return strings.ReplaceAll(filepath.Base(filepath.Dir(data)), "-", "_")
}

// addStandby adds name to a synchronous_standby_names, all of which must confirm.
func addStandby(names, name string) string {
	var all []string
	if _, list, ok := strings.Cut(names, "("); ok {
		all = strings.Split(strings.TrimSuffix(list, ")"), ", ")
	}
	if !slices.Contains(all, name) {
		all = append(all, name)
	}
	return fmt.Sprintf("FIRST %d (%s)", len(all), strings.Join(all, ", "))
}
