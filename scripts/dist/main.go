// Dist builds what a release consists of: for each platform an archive of the command
// and a list of what is linked into it, and the checksums of all of them. The same
// commit, built by the same Go, gives the same bytes in any directory.
//
//	go run ./scripts/dist -version v1.2.3 [-out DIR] [-platforms linux/amd64,darwin/arm64]
//
// It is a part of scripts/release, which checks first that there is something to release.
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
)

// platforms are those that a release is built for.
const platforms = "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

// run builds the release of the module in the working directory.
func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("dist", flag.ContinueOnError)
	version := flags.String("version", "", "the release's version, such as v1.2.3")
	out := flags.String("out", filepath.Join("out", "release"), "the directory to write to; what it holds is deleted")
	list := flags.String("platforms", platforms, "what to build for, as os/arch, separated by commas")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *version == "" || flags.NArg() > 0 {
		return errors.New("usage: dist -version v1.2.3 [-out DIR] [-platforms os/arch,...]")
	}
	made, err := commitTime(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(*out), os.MkdirAll(*out, 0o750)); err != nil {
		return err
	}
	for platform := range strings.SplitSeq(*list, ",") {
		r := release{version: *version, platform: platform, made: made, out: *out}
		if err := r.build(ctx); err != nil {
			return fmt.Errorf("build %s: %w", platform, err)
		}
		fmt.Fprintln(stdout, "dist:", filepath.Join(*out, r.archive()))
	}
	return writeSums(*out)
}

// writeSums writes SHA256SUMS, in the form that sha256sum -c reads.
func writeSums(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var lines []string
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return err
		}
		lines = append(lines, fmt.Sprintf("%x  %s\n", sha256.Sum256(text), entry.Name()))
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[64:], b[64:]) })
	return os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(strings.Join(lines, "")), 0o600)
}
