package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const command = "retrysafe"

// A release is what is built for one platform.
type release struct {
	version, platform string
	made              time.Time // when its commit was: the time of every file
	out               string
}

// name is that of the folder inside the archive, and of the files without their endings.
func (r *release) name() string {
	return command + "_" + r.version + "_" + strings.ReplaceAll(r.platform, "/", "_")
}

func (r *release) windows() bool { return strings.HasPrefix(r.platform, "windows/") }

func (r *release) archive() string {
	if r.windows() {
		return r.name() + ".zip"
	}
	return r.name() + ".tar.gz"
}

// build writes the archive and the list of what is linked.
func (r *release) build(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "dist")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, command)
	if err := r.compile(ctx, program); err != nil {
		return err
	}
	binary, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		return err
	}
	if info.Main.Version != r.version {
		return fmt.Errorf("the program says that it is %s, not %s: is the tag at this commit, and nothing changed since?", info.Main.Version, r.version)
	}
	bom, err := sbom(r, info, binary)
	if err != nil {
		return err
	}
	licences, err := thirdParty(ctx, info)
	if err != nil {
		return err
	}
	files := []file{
		{name: command, text: binary, program: true},
		{name: "THIRD-PARTY-LICENSES.txt", text: licences},
		{name: "sbom.cdx.json", text: bom},
	}
	if r.windows() {
		files[0].name += ".exe"
	}
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		files = append(files, file{name: name, text: text})
	}
	packed, err := r.pack(files)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.out, r.archive()), packed, 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, r.name()+".cdx.json"), bom, 0o600)
}

// compile builds the command. What could differ from machine to machine is set, so that
// the commit and the version of Go alone decide what comes out.
func (r *release) compile(ctx context.Context, to string) error {
	system, arch, ok := strings.Cut(r.platform, "/")
	if !ok {
		return fmt.Errorf("%q is not os/arch", r.platform)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=true", "-ldflags=-s -w", "-o", to, "./cmd/"+command)
	cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0",
		"GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=-mod=readonly", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// commitTime returns when the commit was made that is checked out.
func commitTime(ctx context.Context) (time.Time, error) {
	out, err := exec.CommandContext(ctx, "git", "log", "-1", "--format=%ct").Output()
	if err != nil {
		return time.Time{}, fmt.Errorf("read the time of the commit: %w", err)
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	return time.Unix(seconds, 0).UTC(), err
}
