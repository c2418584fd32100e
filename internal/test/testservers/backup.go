package testservers

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// copyRunning fills data with a copy of the running server, as pg_basebackup does, which
// fetched versions lack. It is for a server whose write-ahead log is still whole.
func (p *Postgres) copyRunning(ctx context.Context, data string) error {
	return p.withConn(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		start, stop := "pg_backup_start('standby', true)", "pg_backup_stop(false)"
		if conn.PgConn().ParameterStatus("server_version") < "15" {
			start, stop = "pg_start_backup('standby', true, false)", "pg_stop_backup(false, false)"
		}
		if _, err := conn.Exec(ctx, "SELECT "+start); err != nil {
			return err
		}
		if err := copyTree(p.data(), data, skipInBackup); err != nil {
			return err
		}
		var label string
		if err := conn.QueryRow(ctx, "SELECT labelfile FROM "+stop).Scan(&label); err != nil {
			return err
		}
		copied := &Postgres{process: &process{dir: filepath.Dir(data)}}
		return errors.Join(
			copied.writeData("backup_label", label, os.O_TRUNC),
			copyTree(filepath.Join(p.data(), "pg_wal"), filepath.Join(data, "pg_wal"), func(string, bool) bool { return false }))
	})
}

// skipInBackup reports whether the server makes a file of its data directory anew, or it
// is that of one server alone. The log is copied at the end, when it has all of the backup.
func skipInBackup(path string, dir bool) bool {
	made := []string{"pg_wal", "pg_replslot", "pg_dynshmem", "pg_notify", "pg_serial", "pg_snapshots", "pg_stat_tmp", "pg_subtrans"}
	name := filepath.Base(path)
	return !dir && slices.Contains(made, strings.Split(path, "/")[0]) || strings.HasPrefix(name, "postmaster.") || strings.HasPrefix(name, "pgsql_tmp")
}

// copyTree copies a directory to a place where parts of it may be already. A file that
// goes away meanwhile is left out.
func copyTree(from, to string, skip func(path string, dir bool) bool) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		inside, err := filepath.Rel(from, path)
		if err != nil || skip(inside, d.IsDir()) {
			return err
		}
		target := filepath.Join(to, inside)
		if d.IsDir() {
			if err := os.Mkdir(target, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
			return give(target)
		}
		return copyFile(path, target)
	})
}

func copyFile(from, to string) error {
	source, err := os.Open(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close(), give(to))
}
