package listener_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/listener"
)

// operated is an App with pages that guard themselves.
type operated struct {
	listener.App
	upstream string
}

func (o *operated) Operators() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "%s %s for %s, %d bytes, %v", r.Method, r.URL.Path, o.upstream, n, err)
	})
}

// withOperators lets each App have pages of its own.
func withOperators(s *site, o *listener.Options) {
	withPages(s, o)
	build := o.Build
	o.Build = func(ctx context.Context, c *config.Config) (listener.App, error) {
		app, err := build(ctx, c)
		if err != nil {
			return nil, err
		}
		return &operated{app, c.Upstream}, nil
	}
	s.config.Admin.MetricsToken = "a-token-for-the-scraper"
	s.config.Admin.Tokens = []config.AdminToken{{Name: "anna", Role: "read", Token: "a-token-of-anna-only"}}
}

// Pages that guard themselves get every request but those for health and metrics, with or
// without a token; the token for metrics opens nothing else.
func TestPagesThatGuardThemselves(t *testing.T) {
	t.Parallel()
	s := start(t, nil, withOperators)
	for _, c := range []struct {
		path, token string
		status      int
		body        string
	}{
		{"/keys", "", 200, "GET /keys for one, 0 bytes, <nil>"},
		{"/keys", "wrong", 200, "GET /keys for one, 0 bytes, <nil>"},
		{"/keys", "a-token-for-the-scraper", 403, ""},
		{"/metrics", "", 401, ""},
		{"/metrics", "wrong", 401, ""},
		{"/metrics", token, 200, "metrics"},
		{"/metrics", "a-token-of-anna-only", 200, "metrics"},
		{"/metrics", "a-token-for-the-scraper", 200, "metrics"},
		{"/livez", "", 200, "ok\n"},
		{"/readyz", "", 200, "ok\n"},
	} {
		var header []string
		if c.token != "" {
			header = []string{"Authorization", "Bearer " + c.token}
		}
		status, body := get(t, s.client(), s.addresses().Admin+c.path, header...)
		if status != c.status || c.body != "" && body != c.body {
			t.Errorf("%s with %q: got %d %q, want %d %q", c.path, c.token, status, body, c.status, c.body)
		}
	}
	s.change(func(c *config.Config) { c.Upstream = "two" })
	if _, body := get(t, s.client(), s.addresses().Admin+"/"); body != "GET / for two, 0 bytes, <nil>" {
		t.Errorf("after a reload: %q", body)
	}
}

// shortDir returns a directory whose path is short enough for a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rs") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// The socket serves what the admin listener does, to the user of the process alone. It
// replaces one that was left behind, and is removed at the end.
func TestAdminSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(shortDir(t), "admin.sock")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	_ = left.Close()
	s := start(t, nil, withOperators, func(s *site, _ *listener.Options) { s.config.Admin.Socket = path })
	if got := s.addresses().Socket; got != "unix:"+path {
		t.Errorf("the address is %q", got)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the socket: %v, %v", info, err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}}}
	if status, body := get(t, client, "http://retrysafe/keys"); status != 200 || body != "GET /keys for one, 0 bytes, <nil>" {
		t.Errorf("got %d %q", status, body)
	}
	if status, _ := get(t, client, "http://retrysafe/metrics"); status != 401 {
		t.Errorf("metrics without a token: %d", status)
	}
	s.change(func(c *config.Config) { c.Admin.Socket = "" })
	eventually(t, "the socket is removed", func() bool {
		_, err := os.Stat(path)
		return os.IsNotExist(err)
	})
}

// A path that is in use is refused, and what is there stays.
func TestAdminSocketInUse(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	file, used := filepath.Join(dir, "file"), filepath.Join(dir, "used.sock")
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: used, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for _, path := range []string{file, used, filepath.Join(dir, "missing", "admin.sock")} {
		server, err := listener.New(listener.Options{
			Load: func() (*config.Config, error) {
				return &config.Config{Listen: "127.0.0.1:0", Admin: config.Admin{Socket: path, Token: token}}, nil
			},
			Build: func(context.Context, *config.Config) (listener.App, error) { return newApp("app", nil), nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := server.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "another path for admin.socket") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "text" {
		t.Errorf("the file has %q, %v", text, err)
	}
}
