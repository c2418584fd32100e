package daily

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
)

// The formats of reports.
const (
	Text = "text"
	JSON = "json"
	HTML = "html"
)

// Formats are all of them.
func Formats() []string { return []string{Text, JSON, HTML} }

var endings = map[string]string{Text: ".txt", JSON: ".jsonl", HTML: ".html"}

// Report returns a report of the comparison in a format. Its heading is written at once.
func (c *Comparison) Report(w io.Writer, format string) (ledger.Report, error) {
	switch h := c.Heading(); format {
	case HTML:
		return ledger.HTMLReport(w, h), nil
	case JSON:
		line, err := json.Marshal(struct {
			Kind string `json:"kind"`
			Result
			Summary *struct{} `json:"summary,omitempty"` // it is the last line
			Ended   *struct{} `json:"ended,omitempty"`
		}{Kind: "ledger", Result: c.result})
		if err == nil {
			_, err = w.Write(append(printable.JSON(line), '\n'))
		}
		return ledger.JSONLReport(w), err
	default:
		_, err := fmt.Fprintln(w, printable.Text(h.Title))
		for _, line := range h.Lines {
			if err == nil {
				_, err = fmt.Fprintln(w, printable.Text(line))
			}
		}
		if err == nil {
			_, err = fmt.Fprintln(w)
		}
		return ledger.TextReport(w), err
	}
}

// files are the reports of a day while they are written. Readers never see a part of one.
type files struct {
	open []*reportFile
	all  []ledger.Report
}

type reportFile struct {
	*os.File
	w    *bufio.Writer
	path string
}

// openFiles begins the reports of a comparison.
func (c *Comparison) openFiles() (*files, error) {
	f := new(files)
	if c.job.Directory == "" {
		return f, nil
	}
	for _, format := range c.job.Formats {
		path := filepath.Join(c.job.Directory, c.job.Name+"-"+c.result.Day+endings[format])
		file, err := os.CreateTemp(c.job.Directory, ".ledger-*.tmp")
		if err == nil {
			one := &reportFile{file, bufio.NewWriter(file), path}
			f.open = append(f.open, one)
			var r ledger.Report
			if r, err = c.Report(one.w, format); err == nil {
				f.all = append(f.all, r)
				continue
			}
		}
		f.discard()
		return nil, fmt.Errorf("write a report: %w", err)
	}
	return f, nil
}

// Add implements [ledger.Report].
func (f *files) Add(d ledger.Difference) error {
	for _, r := range f.all {
		if err := r.Add(d); err != nil {
			return err
		}
	}
	return nil
}

// End implements [ledger.Report].
func (f *files) End(s ledger.Summary, err error) error {
	var failed error
	for _, r := range f.all {
		failed = errors.Join(failed, r.End(s, err))
	}
	return failed
}

// publish gives the reports their names.
func (f *files) publish() error {
	defer f.discard()
	for _, one := range f.open {
		err := errors.Join(one.w.Flush(), one.Chmod(0o640), one.Sync())
		if err = errors.Join(err, one.Close()); err != nil {
			return fmt.Errorf("write a report: %w", err)
		}
	}
	for _, one := range f.open {
		if err := os.Rename(one.Name(), one.path); err != nil {
			return fmt.Errorf("write a report: %w", err)
		}
	}
	f.open = nil
	return nil
}

// discard removes what has no name yet.
func (f *files) discard() {
	for _, one := range f.open {
		_ = one.Close() // it may be closed already
		_ = os.Remove(one.Name())
	}
	f.open = nil
}

// checkDirectory makes the directory of the reports, and returns an error if they cannot be written there.
func (j *Job) checkDirectory() error {
	if j.Directory == "" {
		return nil
	}
	err := os.MkdirAll(j.Directory, 0o750)
	if err == nil {
		var probe *os.File
		if probe, err = os.CreateTemp(j.Directory, ".ledger-*.tmp"); err == nil {
			return errors.Join(probe.Close(), os.Remove(probe.Name()))
		}
	}
	return fmt.Errorf("reports cannot be written to %s: %w; make the directory, and let this program write there", j.Directory, err)
}
