// Command mutation looks for holes in the tests of a package. It plants small bugs, one
// at a time, and reports those that no test notices:
//
//	go run ./internal/test/mutation -pkg ./httpkey -n 200
//
// All bugs are compiled into one test binary, each behind a condition on its number
// (mutant schemata), and the number of the active one comes from the environment. The
// source tree is not touched: the go command reads the changed files by -overlay.
//
// A first round runs each test alone, to learn which tests reach which mutants. Then each
// mutant meets only the tests that reach it. A survivor is a question and not yet a hole:
// some change nothing that a caller could see.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
)

// options are the flags of one run.
type options struct {
	dir     string   // the directory that patterns of packages are relative to
	pkg     string   // the package with the bugs
	tests   []string // packages whose tests may notice what the package's own do not
	file    *regexp.Regexp
	sample  int // 0 is all
	seed    uint64
	jobs    int
	verbose bool
	list    bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutation:", err)
		os.Exit(1) //nolint:forbidigo // this is a command
	}
}

// command reads the flags, runs, and writes the report.
func command(ctx context.Context, args []string, out, progress io.Writer) error {
	flags := flag.NewFlagSet("mutation", flag.ContinueOnError)
	flags.SetOutput(progress)
	pkg := flags.String("pkg", "", "the package to plant bugs in, such as ./httpkey")
	tests := flags.String("tests", "", "further packages, by comma, whose tests run for what the package's own tests let pass")
	file := flags.String("file", "", "plant bugs only where file.go:line matches this regular expression")
	sample := flags.Int("n", 0, "plant this many bugs, drawn at random; 0 is all")
	seed := flags.Uint64("seed", 1, "the seed of the draw")
	jobs := flags.Int("j", 2, "how many test processes run at a time")
	verbose := flags.Bool("v", false, "also print each bug that a test noticed, and which test")
	list := flags.Bool("list", false, "print the bugs and run nothing")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *pkg == "" || flags.NArg() > 0 {
		return errors.New("name the package by -pkg, for example -pkg ./httpkey; there are no other arguments")
	}
	if strings.Contains(*pkg, "...") {
		return fmt.Errorf("-pkg %s: name a single package, for example -pkg ./httpkey", *pkg)
	}
	if *jobs < 1 || *sample < 0 {
		return errors.New("-j is at least 1, and -n at least 0")
	}
	match, err := regexp.Compile(*file)
	if err != nil {
		return fmt.Errorf("-file: %w", err)
	}
	o := options{dir: ".", pkg: *pkg, file: match, sample: *sample, seed: *seed, jobs: *jobs, verbose: *verbose, list: *list}
	if *tests != "" {
		o.tests = strings.Split(*tests, ",")
	}
	r, err := run(ctx, o, progress)
	if err != nil {
		return err
	}
	r.print(out)
	return nil
}
