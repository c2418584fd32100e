package conform_test

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/conform"
)

// broken returns the report of an API that runs every retry again, and sends what would
// control a terminal or a page.
func broken(t *testing.T) *conform.Report {
	t.Helper()
	n := 0
	url := serveZoo(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n++
		w.Header().Set("X-Api-Key", "hunter2")
		fmt.Fprintf(w, "{\"id\": \"%d <script>alert(1)</script> \x1b[31m\"}", n)
	}))
	r, err := conform.Run(t.Context(), &conform.Options{
		URL: url, Rate: 1e6, RunID: "fixed", Only: []string{"replay"},
		Request: conform.Request{Path: "/payments", Body: []byte(`{"note": "it's"}`), Header: http.Header{"Authorization": {"Bearer hunter2"}}},
	})
	must(t, err)
	return r
}

func written(t *testing.T, r *conform.Report, format string) string {
	t.Helper()
	var b strings.Builder
	must(t, r.Write(&b, format))
	return b.String()
}

func TestReports(t *testing.T) {
	t.Parallel()
	r := broken(t)
	for _, format := range []string{"text", "ansi", "json", "junit", "html"} {
		said := written(t, r, format)
		if strings.Contains(said, "hunter2") {
			t.Errorf("%s shows credentials", format)
		}
		if strings.Contains(said, "<script>") && (format == "html" || format == "junit") || strings.Contains(said, "\x1b[31m") || format != "ansi" && strings.Contains(said, "\x1b") {
			t.Errorf("%s passes on what the API sent to control it:\n%s", format, said)
		}
		for _, want := range []string{"replay/effect", "violated", "conform-fixed"} {
			if !strings.Contains(said, want) && (format != "junit" || want != "violated") {
				t.Errorf("%s does not have %q:\n%s", format, want, said)
			}
		}
	}
	if err := r.Write(&strings.Builder{}, "pdf"); err == nil {
		t.Error("there is no format pdf")
	}
}

// The report of a violation has all that is needed to see it again.
func TestTextReportReproduces(t *testing.T) {
	t.Parallel()
	said := written(t, broken(t), "text")
	for _, want := range []string{
		"replay/effect: violated (critical)", "required: A retry of a completed request does not run it again.", "from:     IETF draft §2.6",
		"> POST /payments HTTP/1.1", "> Authorization: (hidden)", `> Idempotency-Key: "conform-fixed-replay-effect-0"`, "< HTTP/1.1 200 OK",
		`-H "Authorization: $AUTHORIZATION" -H 'Content-Type: application/json' -H 'Idempotency-Key: "conform-fixed-replay-effect-0"' --data-binary '{"note": "it'\''s"}'`,
		"dependency failed  replay/bytes              replay/effect is violated", "Weaker verdicts",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q:\n%s", want, said)
		}
	}
}

func TestJSONReportIsReadBack(t *testing.T) {
	t.Parallel()
	r := broken(t)
	var back conform.Report
	must(t, json.Unmarshal([]byte(written(t, r, "json")), &back))
	if len(back.Results) != len(r.Results) || back.Err() == nil || back.Err().Error() != r.Err().Error() || !back.Fails("critical") {
		t.Errorf("another report was read back: %v", back.Err())
	}
}

func TestJUnitReport(t *testing.T) {
	t.Parallel()
	r := broken(t)
	var suites struct {
		Suite struct {
			Tests    int `xml:"tests,attr"`
			Failures int `xml:"failures,attr"`
			Skipped  int `xml:"skipped,attr"`
			Cases    []struct {
				Name    string `xml:"name,attr"`
				Failure *struct {
					Message string `xml:"message,attr"`
					Text    string `xml:",chardata"`
				} `xml:"failure"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	must(t, xml.Unmarshal([]byte(written(t, r, "junit")), &suites))
	s := suites.Suite
	if s.Tests != len(r.Results) || s.Failures != 1 || s.Skipped == 0 {
		t.Errorf("%d tests, %d failures, %d skipped", s.Tests, s.Failures, s.Skipped)
	}
	for _, c := range s.Cases {
		if c.Failure != nil && (c.Name != "replay/effect" || !strings.Contains(c.Failure.Text, "curl -i")) {
			t.Errorf("%s failed: %s", c.Name, c.Failure.Text)
		}
	}
}

// A page that is sent around loads nothing from elsewhere.
func TestHTMLReportStandsAlone(t *testing.T) {
	t.Parallel()
	said := written(t, broken(t), "html")
	if found := regexp.MustCompile(`(?i)\b(src|href|action)=|url\(|@import|<script|<link|<img|<iframe`).FindString(said); found != "" {
		t.Errorf("the page has %q", found)
	}
	if !strings.Contains(said, "A client that retries can do harm") || !strings.Contains(said, "default-src 'none'") {
		t.Errorf("the page does not say the result:\n%s", said)
	}
}
