package browser_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

var screenshots = flag.String("screenshots", "", "the folder that pictures of all pages are written into")

// browser is the context of one Chromium for all tests. Each test has its own cookies.
var browser context.Context

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(withBrowser(m))
}

func withBrowser(m *testing.M) int {
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.Flag("disable-dev-shm-usage", true), chromedp.WSURLReadTimeout(2*time.Minute))
	all, stop := chromedp.NewExecAllocator(context.Background(), opts...)
	defer stop()
	ctx, end := chromedp.NewContext(all)
	defer end()
	if err := chromedp.Do(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "start chromium, which scripts/setup installs: %v\n", err)
		return 1
	}
	browser = ctx
	return m.Run()
}

// A tab is a person in front of a browser.
type tab struct {
	t   *testing.T
	s   *site
	ctx context.Context
}

// enough is how long a page may take on a machine that is busy with other things.
const enough = 90 * time.Second

// newTab opens a browser without cookies. What its console complains about fails the test:
// an error of the script, or something that the policy has blocked.
func (s *site) newTab(t *testing.T) *tab {
	t.Helper()
	ctx, end := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	b := &tab{t: t, s: s, ctx: ctx}
	must(t, chromedp.Do(ctx))
	messages := chromedp.Console(ctx)
	var read sync.WaitGroup
	read.Go(func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			// The browser notes each answer of 400 and above, which tests cause on purpose.
			if (m.Type == chromedp.ConsoleError || m.IsException()) && m.Source != "network" {
				t.Errorf("the browser complains: %s", m)
			}
		}
	})
	t.Cleanup(func() {
		end()
		read.Wait()
	})
	b.do(chromedp.EmulateViewport(1360, 900))
	return b
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, enough)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatalf("%v\n%s", err, b.shown())
	}
}

// shown returns where the browser is and what it shows, for messages.
func (b *tab) shown() string {
	ctx, cancel := context.WithTimeout(b.ctx, enough)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string]("location.href + '\\n' + document.body.innerText"))
	if err != nil {
		return err.Error()
	}
	return text
}

// open loads a page, by its path below the prefix.
func (b *tab) open(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.s.url+path), chromedp.WaitVisible(chromedp.CSS("#content")))
}

// login logs a person in.
func (b *tab) login(token string) {
	b.t.Helper()
	b.open("/")
	b.typed("input[name=token]", token)
	b.click("form[action$='/login'] button")
	b.do(chromedp.WaitVisible(chromedp.CSS(".menu")))
}

// waitFor waits until an element has a text within its own. It goes on while pages change.
func (b *tab) waitFor(selector, part string) {
	b.t.Helper()
	quoted, _ := json.Marshal([]string{selector, part})
	expression := fmt.Sprintf(`(() => { const [s, p] = %s; return [...document.querySelectorAll(s)].some((e) => e.checkVisibility() && e.innerText.includes(p)) })()`, quoted)
	for until := time.Now().Add(enough); time.Now().Before(until); time.Sleep(30 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(b.ctx, enough)
		found, err := chromedp.Run(ctx, chromedp.Evaluate[bool](expression))
		cancel()
		if err == nil && found {
			return
		}
	}
	b.t.Fatalf("%s never said %q\n%s", selector, part, b.shown())
}

// click clicks an element.
func (b *tab) click(selector string) {
	b.t.Helper()
	b.do(chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible))
}

// typed types a text into a field.
func (b *tab) typed(selector, text string) {
	b.t.Helper()
	b.do(chromedp.SendKeys(chromedp.CSS(selector), text, chromedp.NodeVisible))
}

// evaluate returns the value of an expression in the page.
func evaluate[T any](b *tab, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, enough)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%v\n%s", err, b.shown())
	}
	return v
}

// settle fills in the form of an action of the page and sends it.
func (b *tab) settle(verb, why string) {
	b.t.Helper()
	form := fmt.Sprintf("form[action*='/act/%s']", verb)
	b.click(fmt.Sprintf("details:has(%s) summary", form))
	b.typed(form+" input[name=why]", why)
	if evaluate[bool](b, fmt.Sprintf(`!!document.querySelector("%s textarea")`, form)) {
		b.typed(form+" textarea", `{"id": "ch_17"}`)
	}
	if evaluate[bool](b, fmt.Sprintf(`!!document.querySelector("%s input[name=confirm]")`, form)) {
		b.click(form + " input[name=confirm]")
	}
	b.click(form + " button[type=submit]")
}

// A violation is a defect that axe-core has found.
type violation struct {
	ID, Impact, Help string
	Nodes            []struct {
		HTML           string
		FailureSummary string
	}
}

// accessible fails if axe-core finds a serious defect in the page. Options are those of
// its run.
func (b *tab) accessible(name, options string) {
	b.t.Helper()
	if !evaluate[bool](b, "!!window.axe") {
		b.do(chromedp.Evaluate[chromedp.Void](axe(b.t)))
	}
	type report struct{ Violations []violation }
	r := evaluate[report](b, "axe.run(document, {"+options+"})")
	for _, v := range r.Violations {
		if v.Impact == "serious" || v.Impact == "critical" {
			b.t.Errorf("%s: %s (%s): %s", name, v.ID, v.Impact, v.Help)
			for _, n := range v.Nodes[:min(3, len(v.Nodes))] {
				b.t.Errorf("   %s\n   %s", n.HTML, n.FailureSummary)
			}
		}
	}
}

// axe returns the script of axe-core, which scripts/setup installs.
var axe = func() func(testing.TB) string {
	var once sync.Once
	var script string
	return func(t testing.TB) string {
		t.Helper()
		once.Do(func() {
			lock, err := os.ReadFile("../testservers/axe/package-lock.json")
			must(t, err)
			sum := sha256.Sum256(lock)
			cache, err := os.UserCacheDir()
			must(t, err)
			text, err := os.ReadFile(filepath.Join(cache, "retrysafe", "npm", "axe-"+hex.EncodeToString(sum[:])[:12], "node_modules/axe-core/axe.min.js"))
			if err != nil {
				t.Fatalf("axe-core is missing; run scripts/setup: %v", err)
			}
			script = string(text)
		})
		return script
	}
}()

// picture writes a picture of the whole page, if pictures are wanted.
func (b *tab) picture(name string) {
	b.t.Helper()
	b.write(name, chromedp.FullScreenshot(100))
}

// view writes a picture of what a window shows.
func (b *tab) view(name string) {
	b.t.Helper()
	b.write(name, chromedp.CaptureScreenshot())
}

func (b *tab) write(name string, screenshot chromedp.Action[[]byte]) {
	b.t.Helper()
	if *screenshots == "" {
		return
	}
	must(b.t, os.MkdirAll(*screenshots, 0o755))
	ctx, cancel := context.WithTimeout(b.ctx, enough)
	defer cancel()
	png, err := chromedp.Run(ctx, screenshot)
	must(b.t, err)
	must(b.t, os.WriteFile(filepath.Join(*screenshots, name+".png"), png, 0o644))
}

// theme lets the browser prefer a theme.
func (b *tab) theme(name string) {
	b.t.Helper()
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: name}, {Name: "prefers-reduced-motion", Value: "reduce"}, // colours change at once
		}})
		return err
	}))
}

// withoutScript lets the browser run no script of pages.
func (b *tab) withoutScript() {
	b.t.Helper()
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
		return err
	}))
}

func slug(name string) string { return strings.ReplaceAll(strings.ToLower(name), " ", "-") }
