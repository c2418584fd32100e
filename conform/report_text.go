package conform

import (
	"encoding/xml"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// colours of verdicts, by the codes of ANSI.
var colours = map[string]string{
	holds: "32", violated: "1;31", notOptimal: "33", setupFailed: "35", observation: "36", notSupported: "36", dependencyFailed: "90", notTested: "90",
}

func (r *Report) text(w io.Writer, colour bool) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s, profile %s; keys begin with conform-%s\n\n", clean(r.URL), clean(r.Operation), clean(r.Profile), r.RunID)
	for i := range r.Results {
		result := &r.Results[i]
		verdict := fmt.Sprintf("%-17s", result.Verdict)
		if colour {
			verdict = "\x1b[" + colours[result.Verdict] + "m" + verdict + "\x1b[0m"
		}
		fmt.Fprintf(&b, "%s  %-24s  %s%s\n", verdict, clean(result.Check), clean(result.Why), mark(result))
	}
	for i := range r.Results {
		r.Results[i].details(&b)
	}
	if reasons, by := r.weak(); len(reasons) > 0 {
		b.WriteString("\nWeaker verdicts, marked with *:\n")
		for _, why := range reasons {
			fmt.Fprintf(&b, "  %s: %s\n", clean(strings.Join(by[why], ", ")), why)
		}
	}
	fmt.Fprintf(&b, "\n%s; %s in %s\n", r.summary(), counted(r.requests(), "request"), r.Took.Round(100*time.Millisecond))
	_, err := io.WriteString(w, b.String())
	return err
}

// counted returns a number with its noun.
func counted(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return strconv.Itoa(n) + " " + noun
}

func mark(r *Result) string {
	if r.Weak != "" {
		return " *"
	}
	return ""
}

// details writes what a reader needs to see for himself that a requirement is not met.
func (r *Result) details(b *strings.Builder) {
	if r.Verdict != violated && r.Verdict != notOptimal && r.Verdict != setupFailed {
		return
	}
	fmt.Fprintf(b, "\n%s: %s (%s)\n  required: %s\n  from:     %s\n  seen:     %s\n", clean(r.Check), r.Verdict, r.Severity, clean(r.Requirement), r.Clause, clean(r.Why))
	for _, x := range r.Exchanges {
		fmt.Fprintf(b, "  %s\n", clean(x.Step))
		for _, part := range []struct{ sign, text string }{{">", x.Sent}, {"<", x.Received}} {
			for line := range strings.Lines(strings.TrimRight(part.text, "\n")) {
				fmt.Fprintf(b, "    %s %s\n", part.sign, clean(strings.TrimRight(line, "\r\n")))
			}
		}
		fmt.Fprintf(b, "    $ %s\n", clean(x.Curl))
	}
}

// clean returns foreign text with everything escaped that is not printable, so that no API
// can control the terminal of its tester.
func clean(text string) string {
	var b strings.Builder
	for _, c := range text {
		if unicode.IsPrint(c) {
			b.WriteRune(c)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(c), "'"))
		}
	}
	return b.String()
}

// The elements of a JUnit report, as CI systems read it.
type (
	junitSuites struct {
		XMLName xml.Name   `xml:"testsuites"`
		Suite   junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Errors   int         `xml:"errors,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Time     string      `xml:"time,attr"`
		Began    string      `xml:"timestamp,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string      `xml:"classname,attr"`
		Name    string      `xml:"name,attr"`
		Time    string      `xml:"time,attr"`
		Failure *junitEvent `xml:"failure,omitempty"`
		Error   *junitEvent `xml:"error,omitempty"`
		Skipped *junitEvent `xml:"skipped,omitempty"`
		Out     string      `xml:"system-out,omitempty"`
	}
	junitEvent struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr,omitempty"`
		Text    string `xml:",chardata"`
	}
)

// junit writes a test case for each check: what is violated is a failure, what could not
// be set up an error, what was not tested is skipped.
func (r *Report) junit(w io.Writer) error {
	suite := junitSuite{Name: "retrysafe verify " + clean(r.URL), Tests: len(r.Results), Time: seconds(r.Took), Began: r.Began.Format("2006-01-02T15:04:05")}
	for i := range r.Results {
		result := &r.Results[i]
		c := junitCase{Class: "retrysafe." + clean(r.Profile), Name: clean(result.Check), Time: seconds(result.Took)}
		var text strings.Builder
		result.details(&text)
		event := &junitEvent{Message: clean(result.Why), Type: result.Severity, Text: text.String()}
		switch result.Verdict {
		case violated:
			c.Failure = event
			suite.Failures++
		case setupFailed:
			c.Error = event
			suite.Errors++
		case dependencyFailed, notTested, notSupported:
			c.Skipped = &junitEvent{Message: result.Verdict + ": " + clean(result.Why)}
			suite.Skipped++
		default:
			c.Out = result.Verdict + ": " + clean(result.Why) + text.String()
		}
		suite.Cases = append(suite.Cases, c)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(junitSuites{Suite: suite}); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 3, 64) }
