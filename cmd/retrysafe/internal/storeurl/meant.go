package storeurl

import (
	"net/url"
	"path/filepath"
	"strings"
)

// meantBy returns the URL that a text which is none probably stands for, or nothing. It
// shows no part of the text that may be a password.
func meantBy(text string) string {
	const server = "postgres://user:password@host/database"
	scheme, rest, hasColon := strings.Cut(text, ":")
	switch {
	case strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }): // it would be shown
		return ""
	case hasColon && (scheme == "file" || scheme == "sqlite3") && !strings.ContainsAny(rest, "?@"):
		return "sqlite:" + strings.TrimPrefix(rest, "//")
	case hasColon && (scheme == "pg" || scheme == "pgsql" || scheme == "psql" || scheme == "postgre"):
		return server
	case strings.Contains(text, "://"):
		return ""
	case hasColon && (scheme == MySQL || scheme == "mariadb"):
		return scheme + "://user:password@host/database"
	case hasColon && isRedis(scheme):
		return scheme + "://user:password@host"
	case hasColon && scheme == DynamoDB:
		return "dynamodb://REGION/TABLE"
	case strings.Contains(text, "@"): // user:password@host, without a scheme
		return server
	case !hasColon && (isPath(text) || isDatabaseFile(text)):
		return "sqlite:" + text
	case hasColon && isPort(rest):
		return "postgres://user:password@" + text
	}
	return ""
}

// isPath reports whether a text can only be the path of a file.
func isPath(text string) bool {
	return filepath.IsAbs(text) || strings.HasPrefix(text, "./") || strings.HasPrefix(text, "../")
}

// isDatabaseFile reports whether a text has the name of a database in a file.
func isDatabaseFile(text string) bool {
	switch strings.ToLower(filepath.Ext(text)) {
	case ".db", ".sqlite", ".sqlite3", ".db3":
		return true
	default:
		return false
	}
}

// isPort reports whether what follows a colon is a port, and perhaps a path.
func isPort(text string) bool {
	u, err := url.Parse("x://h:" + text)
	return err == nil && u.Port() != ""
}
