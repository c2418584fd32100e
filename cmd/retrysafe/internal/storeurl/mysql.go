package storeurl

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/retrysafe/retrysafe/store/mysqlstore"
)

// MySQL is the kind of stores in MySQL and MariaDB.
const MySQL = "mysql"

const mysqlPort = "3306"

var errMySQL = errors.New("a MySQL URL is mysql://user:password@host:3306/database")

// parseMySQL parses a URL of MySQL or MariaDB. Its parameters are those of the driver,
// such as tls=true.
func parseMySQL(text string) (Address, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil: // without err, which quotes the password
		return Address{}, fmt.Errorf("a MySQL URL cannot be read; characters such as @ : / # %% in a password are written as %%40 and so on: %w", errMySQL)
	case u.Hostname() == "":
		return Address{}, fmt.Errorf("a MySQL URL without a host: %w", errMySQL)
	case strings.Trim(u.Path, "/") == "":
		return Address{}, fmt.Errorf("a MySQL URL without a database: %w", errMySQL)
	}
	port := u.Port()
	if port == "" {
		port = mysqlPort
	}
	config := mysql.NewConfig()
	config.Net, config.Addr, config.DBName = "tcp", net.JoinHostPort(u.Hostname(), port), strings.TrimPrefix(u.Path, "/")
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	dsn := config.FormatDSN()
	if u.RawQuery != "" {
		separator := "?"
		if strings.Contains(dsn[strings.LastIndexByte(dsn, '/'):], "?") {
			separator = "&"
		}
		dsn += separator + u.RawQuery
	}
	if _, err := mysql.ParseDSN(dsn); err != nil {
		return Address{}, fmt.Errorf("a MySQL URL with a parameter that the driver refuses: %w", errMySQL)
	}
	return Address{Kind: MySQL, DSN: dsn}, nil
}

// openMySQL opens a store in MySQL or MariaDB.
func openMySQL(ctx context.Context, a *Address, opts *Options) (*Opened, error) {
	s, err := mysqlstore.Open(ctx, a.DSN, &mysqlstore.Options{SkipMigrations: opts.SkipMigrations, Moving: opts.Moving})
	if err != nil {
		return nil, err
	}
	return &Opened{Store: s, Outbox: s.Outbox(), Kind: MySQL, Shared: true, closer: s}, nil
}
