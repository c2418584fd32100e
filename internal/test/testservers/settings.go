package testservers

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Configure changes a setting of the running server, as ALTER SYSTEM does, and
// returns when the server has read it; an empty value takes the change back. New
// connections have it, open ones at their next statement. Some settings need a
// Restart to count.
func (p *Postgres) Configure(ctx context.Context, name, value string) error {
	if err := p.configure(ctx, name, value); err != nil {
		return fmt.Errorf("set %s of %s: %w", name, p.name, err)
	}
	return nil
}

func (p *Postgres) configure(ctx context.Context, name, value string) error {
	// A new connection inherits the postmaster's settings, so it also tells when
	// the postmaster has read them.
	before, err := query[time.Time](ctx, p, "SELECT pg_conf_load_time()")
	if err != nil {
		return err
	}
	sql := "ALTER SYSTEM SET " + pgx.Identifier{name}.Sanitize() + " = " + quoteSQL(value)
	if value == "" {
		sql = "ALTER SYSTEM RESET " + pgx.Identifier{name}.Sanitize()
	}
	if err := p.exec(ctx, sql); err != nil {
		return err
	}
	if err := p.exec(ctx, "SELECT pg_reload_conf()"); err != nil {
		return err
	}
	return poll(ctx, func() (bool, error) {
		now, err := query[time.Time](ctx, p, "SELECT pg_conf_load_time()")
		return now.After(before), err
	})
}

// withCron loads pg_cron, which connects to the server as any client does.
func withCron(bin string, opts *PostgresOptions) error {
	if err := findCron(bin); err != nil {
		return err
	}
	settings := map[string]string{"shared_preload_libraries": "pg_cron", "cron.database_name": opts.Cron, "cron.host": "127.0.0.1"}
	maps.Copy(settings, opts.Settings)
	opts.Settings = settings
	return nil
}

// writeConf replaces what initdb or the primary had in postgresql.conf.
func (p *Postgres) writeConf(settings map[string]string) error {
	return p.writeData("postgresql.conf", confLines(settings), os.O_TRUNC)
}

// writeData writes into a file of the data directory.
func (p *Postgres) writeData(name, text string, flag int) error {
	path := filepath.Join(p.data(), name)
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|flag, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.WriteString(text); err != nil {
		return err
	}
	return give(path)
}

func confLines(settings map[string]string) string {
	var text strings.Builder
	escape := strings.NewReplacer(`\`, `\\`, `'`, `''`)
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&text, "%s = '%s'\n", name, escape.Replace(settings[name]))
	}
	return text.String()
}

func quoteSQL(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
