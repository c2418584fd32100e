package httpkey

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"

	"github.com/retrysafe/retrysafe"
)

// watch serves a request in observe mode: the handler always runs, on the client's own
// connection and context, as if there were no guard. Keys are recorded, so that
// requests are found that a guard would have refused or replayed.
func (g *guarded) watch(w http.ResponseWriter, r *http.Request) {
	s := g.pool.Get()
	defer g.release(s)
	spool := &spool{from: r.Body}
	peeked := r.Clone(r.Context())
	if r.Body != nil && r.Body != http.NoBody {
		peeked.Body, r.Body = spool, spool.rewound()
	}
	c, _, re := g.call(peeked, s)
	code := ""
	if re != nil {
		code = re.code
		g.report(code, r, c.Key, false)
	}
	if re != nil || c.Key == "" {
		g.next.ServeHTTP(w, r)
		g.reportDisposition(r, c.Ref, code)
		return
	}
	run, out, err := g.begin(r, &c, nil)
	switch {
	case out != nil:
		code = DispositionReplay
		g.report(code, r, c.Key, false)
	case err != nil:
		code = g.explain(r, c.Key, err).code
		g.report(code, r, c.Key, false)
	}
	if run == nil {
		g.next.ServeHTTP(w, r)
		g.reportDisposition(r, c.Ref, code)
		return
	}
	defer run.Stop()
	tee := &tee{ResponseWriter: w}
	back := false
	defer func() { // a panic goes on; the key is free again, as after any failure
		if !back {
			_ = run.Release(r.Context(), errGoexit)
		}
	}()
	g.next.ServeHTTP(tee, r)
	back = true
	g.record(r, run, tee)
	g.reportDisposition(r, c.Ref, DispositionRan)
}

// spool keeps the part of a body that was read, so that it can be read again.
type spool struct {
	from io.ReadCloser
	kept bytes.Buffer
}

func (s *spool) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	s.kept.Write(p[:n])
	return n, err
}

func (s *spool) Close() error { return nil }

// rewound returns the body from its beginning: what was read, then the rest.
func (s *spool) rewound() io.ReadCloser {
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(&s.kept, s.from), s.from}
}

// record settles the execution of an observed request.
func (g *Guard) record(r *http.Request, run *retrysafe.Execution, t *tee) {
	status := max(t.status, http.StatusOK)
	var err error
	if g.meaning(status, g.policy.OnFailure) == stored {
		err = run.Complete(r.Context(), retrysafe.Result{Status: status, Omitted: true})
	} else {
		err = run.Release(r.Context(), statusError(status))
	}
	if err != nil {
		g.counts.add("record-failed", false)
	}
}

// tee records the status of a response that goes straight to the client.
type tee struct {
	http.ResponseWriter
	status int
}

func (t *tee) WriteHeader(status int) {
	if t.status == 0 && status >= 200 {
		t.status = status
	}
	t.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController reach the connection.
func (t *tee) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// Flush is for handlers that use http.Flusher.
func (t *tee) Flush() { _ = http.NewResponseController(t.ResponseWriter).Flush() }

// Hijack is for handlers that use http.Hijacker.
func (t *tee) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(t.ResponseWriter).Hijack()
}
