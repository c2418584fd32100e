package verify

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/conform"
)

// read turns flags into options of the verifier. It reads files, and sends nothing.
func (o *options) read(env *command.Env, target string) (err error) {
	if err := o.readTarget(target); err != nil {
		return err
	}
	if o.Profile, err = readProfile(o.profile); err != nil {
		return exit.Usagef("--profile %s: %v", o.profile, err)
	}
	if o.openapi != "" {
		if err := o.readOpenAPI(); err != nil {
			return exit.Usagef("--openapi %s: %v", o.openapi, err)
		}
	}
	for _, f := range []struct {
		flag  string
		lines []string
		into  *http.Header
	}{
		{"header", o.headers, &o.Request.Header}, {"other-header", o.otherHeaders, &o.OtherHeader},
		{"slow", o.slow, &o.Slow}, {"fail", o.fail, &o.Fail}, {"limit", o.limit, &o.Limit}, {"crash", o.crash, &o.Crash},
	} {
		if err := readHeaders(f.lines, f.into); err != nil {
			return exit.Usagef("--%s %v", f.flag, err)
		}
	}
	switch {
	case o.data != "":
		o.Request.Body = []byte(o.data)
	case o.body != "":
		if o.Request.Body, err = readFile(env.In, o.body); err != nil {
			return exit.Usagef("--body: %v", err)
		}
	}
	if o.otherBody != "" {
		if o.OtherBody, err = readFile(env.In, o.otherBody); err != nil {
			return exit.Usagef("--other-body: %v", err)
		}
	}
	if o.ca != "" {
		if o.TLS, err = trusting(o.ca); err != nil {
			return exit.Usagef("--ca: %v", err)
		}
	}
	o.Restart = shell(env, o.restart)
	o.StoreDown, o.StoreUp = shell(env, o.storeDown), shell(env, o.storeUp)
	return nil
}

// readTarget takes the operation from --request, or from the path of the URL. With
// --request or --openapi the path of the URL is what all paths begin with.
func (o *options) readTarget(target string) error {
	u, err := url.Parse(target)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return exit.Usagef("%q is not a URL of http or https", target).Hintf("as http://127.0.0.1:8080/payments")
	}
	switch {
	case o.request == "" && o.openapi == "":
		o.Request.Path = u.EscapedPath()
		if u.RawQuery != "" {
			o.Request.Path += "?" + u.RawQuery
		}
		u.Path, u.RawPath, u.RawQuery = "", "", ""
	case o.request != "":
		method, path, ok := strings.Cut(strings.TrimSpace(o.request), " ")
		if !ok || !strings.HasPrefix(path, "/") {
			return exit.Usagef("--request %q is not a method and a path", o.request).Hintf("as 'POST /payments'")
		}
		o.Request.Method, o.Request.Path = method, strings.TrimSpace(path)
	}
	o.URL = u.String()
	return nil
}

func readHeaders(lines []string, into *http.Header) error {
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return fmt.Errorf("%q: it has no colon; a header is 'Name: value'", line)
		}
		if *into == nil {
			*into = http.Header{}
		}
		into.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	return nil
}

const maxFile = 8 << 20

func readFile(stdin io.Reader, name string) ([]byte, error) {
	from := stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer func() { _ = file.Close() }() // it was only read
		from = file
	}
	data, err := io.ReadAll(io.LimitReader(from, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s has more than 8 MiB", name)
	}
	return data, nil
}

func trusting(name string) (*tls.Config, error) {
	data, err := readFile(nil, name)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%s has no certificate in PEM form", name)
	}
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, nil
}

// shell returns a function that runs a command by sh, or nil for no command.
func shell(env *command.Env, line string) func(context.Context) error {
	if line == "" {
		return nil
	}
	return func(ctx context.Context) error {
		cmd := exec.CommandContext(ctx, "sh", "-c", line)
		// Its output belongs to no report. A file, so that a daemon that it leaves behind
		// does not keep a pipe open.
		cmd.Stdout, cmd.Stderr = nil, nil
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
		return nil
	}
}

// A house is the file of a profile: what is not in it is as in the base.
type house struct {
	Base          string            `yaml:"base"`
	Name          *string           `yaml:"name"`
	Header        *string           `yaml:"header"`
	Optional      *bool             `yaml:"optional"`
	Opaque        *bool             `yaml:"opaque"`
	UUID          *bool             `yaml:"uuid"`
	MaxKey        *int              `yaml:"max_key"`
	Missing       []int             `yaml:"missing"`
	Malformed     []int             `yaml:"malformed"`
	Mismatch      []int             `yaml:"mismatch"`
	InFlight      []int             `yaml:"in_flight"`
	Marker        *string           `yaml:"marker"`
	Expires       *string           `yaml:"expires"`
	Unknown       *string           `yaml:"unknown"`
	KeepsFailures *bool             `yaml:"keeps_failures"`
	Severity      map[string]string `yaml:"severity"`
}

// readProfile returns a profile by its name, or from a file.
func readProfile(name string) (*conform.Profile, error) {
	bases := map[string]*conform.Profile{"": conform.IETF, "ietf": conform.IETF, "stripe": conform.Stripe}
	if p, ok := bases[name]; ok {
		return p, nil
	}
	data, err := readFile(nil, name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, errors.New("it is neither ietf nor stripe, and there is no such file")
	}
	if err != nil {
		return nil, err
	}
	var h house
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(&h); err != nil {
		return nil, err
	}
	base, ok := bases[h.Base]
	if !ok {
		return nil, fmt.Errorf("base %q is neither ietf nor stripe", h.Base)
	}
	p := *base
	p.Name = name
	set(&p.Name, h.Name)
	set(&p.Header, h.Header)
	set(&p.Optional, h.Optional)
	set(&p.Opaque, h.Opaque)
	set(&p.UUID, h.UUID)
	set(&p.MaxKey, h.MaxKey)
	set(&p.Marker, h.Marker)
	set(&p.Expires, h.Expires)
	set(&p.Unknown, h.Unknown)
	set(&p.KeepsFailures, h.KeepsFailures)
	for into, from := range map[*[]int][]int{&p.Missing: h.Missing, &p.Malformed: h.Malformed, &p.Mismatch: h.Mismatch, &p.InFlight: h.InFlight} {
		if from != nil {
			*into = from
		}
	}
	p.Severity = h.Severity
	return &p, nil
}

func set[T any](into *T, from *T) {
	if from != nil {
		*into = *from
	}
}
