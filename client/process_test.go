package client_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/client"
	"github.com/retrysafe/retrysafe/client/journal"
)

// Processes that die in the middle of an operation. A child is this very binary again, told
// what to do by its environment.
const (
	childMode = "RETRYSAFE_CLIENT_CHILD" // send, resume or open
	childFile = "RETRYSAFE_CLIENT_JOURNAL"
	childURL  = "RETRYSAFE_CLIENT_URL"
)

func runChild(mode string) int {
	j, err := journal.Open(os.Getenv(childFile), nil)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	c, err := client.New(&client.Options{
		Journal: j, MinWait: time.Millisecond, MaxWait: 10 * time.Millisecond,
		Authorize: func(r *http.Request) error { r.Header.Set("Authorization", "Bearer "+mode); return nil },
	})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	switch mode {
	case "send":
		r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, os.Getenv(childURL), strings.NewReader(`{"order":"17"}`))
		if err == nil {
			r.Header.Set("Content-Type", "application/json")
			_, err = c.Do("order-17", r)
		}
		fmt.Println("done:", err)
	case "resume":
		err := c.Resume(context.Background(), func(op client.Operation, response *http.Response, err error) {
			if err != nil {
				fmt.Println(op.ID, err)
				return
			}
			body, _ := io.ReadAll(response.Body)
			fmt.Println(op.ID, response.StatusCode, string(body))
		})
		fmt.Println("resumed:", err)
	}
	return 0
}

// child returns the command that runs a child.
func child(t *testing.T, mode, file, url string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), childMode+"="+mode, childFile+"="+file, childURL+"="+url)
	return cmd
}

// A process is killed after the API has executed its request and before the answer arrives.
// Its successor asks with the same key, and there is one effect. The same with a process that
// is killed before the request arrives, and after the answer was sent.
func TestKilledBetweenSendAndAnswer(t *testing.T) {
	t.Parallel()
	for _, moment := range []string{"before the effect", "after the effect"} {
		t.Run(moment, func(t *testing.T) {
			t.Parallel()
			killed, reached := make(chan struct{}), make(chan struct{})
			var first atomic.Bool
			a := newAPI(t, nil, keyed, nil)
			inner := a.Config.Handler
			front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if first.Swap(true) {
					inner.ServeHTTP(w, r)
					return
				}
				if moment == "after the effect" {
					inner.ServeHTTP(&nowhere{http.Header{}}, r)
				}
				close(reached)
				<-killed
				hangUp()
			}))
			t.Cleanup(front.Close)
			file := filepath.Join(t.TempDir(), "journal")
			sender := child(t, "send", file, front.URL+"/payments")
			must(t, sender.Start())
			<-reached
			must(t, sender.Process.Kill())
			_ = sender.Wait()
			close(killed)

			out, err := child(t, "resume", file, "").CombinedOutput()
			if want := "order-17 201 {\"paid\":\"17\"}\nresumed: <nil>\n"; err != nil || string(out) != want {
				t.Fatalf("the successor prints %s (%v), want %s", out, err, want)
			}
			if got := a.effectsOf("17"); got != 1 {
				t.Errorf("%d effects, want 1", got)
			}
			all := a.arrived()
			if last := all[len(all)-1]; last.authorization != "Bearer resume" || len(all) == 2 && (all[0].key != last.key || all[0].body != last.body) {
				t.Errorf("the successor sent %+v", all)
			}

			// A second call for the same order finds the first, and sends nothing.
			sent := len(all)
			c := newClient(t, client.Options{Journal: openJournal(t, file)})
			response, err := c.Do("order-17", post(t, front.URL+"/payments", "17"))
			if paid(t, "17", response, err); !client.Replayed(response) || len(a.arrived()) != sent {
				t.Errorf("the second call sent %d requests", len(a.arrived())-sent)
			}
			// And one for the same order with another amount is refused.
			r := post(t, front.URL+"/payments", "18")
			if _, err := c.Do("order-17", r); as[*client.MismatchError](t, err).Status != 0 || a.effectsOf("18") != 0 {
				t.Errorf("%v", err)
			}
		})
	}
}

// nowhere is where an answer goes whose client is gone.
type nowhere struct{ h http.Header }

func (n *nowhere) Header() http.Header         { return n.h }
func (n *nowhere) WriteHeader(int)             {}
func (n *nowhere) Write(b []byte) (int, error) { return len(b), nil }

// A second process on one journal is refused, and says what to do.
func TestTwoProcessesOnOneJournal(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "journal")
	j := openJournal(t, file)
	out, err := child(t, "open", file, "").CombinedOutput()
	want := fmt.Sprintf("the journal is in use by process %d; a journal belongs to one process at a time", os.Getpid())
	if err == nil || !strings.Contains(string(out), want) || strings.Count(string(out), "\n") != 1 {
		t.Errorf("a second process prints %s (%v)", out, err)
	}
	must(t, j.Close())
	if out, err := child(t, "open", file, "").CombinedOutput(); err != nil {
		t.Errorf("after Close: %s, %v", out, err)
	}
}
