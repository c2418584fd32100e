// Package deploy_test checks the deployments as far as that can be done without a
// container engine: what the image would hold is built and run in a bare chroot by an
// unprivileged user, and each file is read as its own tool would read it.
package deploy_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// binary returns the gateway, built by the very line that the Dockerfile has.
var binary = sync.OnceValues(func() (string, error) {
	text, err := os.ReadFile("Dockerfile")
	if err != nil {
		return "", err
	}
	line := regexp.MustCompile(`(?m)^RUN (CGO_ENABLED=0 go build .*) -o /out/retrysafe (.*)$`).FindSubmatch(text)
	if line == nil {
		return "", errors.New("the Dockerfile builds no /out/retrysafe")
	}
	dir, err := os.MkdirTemp("", "retrysafe-deploy-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "retrysafe")
	build := exec.Command("sh", "-c", string(line[1])+" -o "+path+" "+string(line[2]))
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		return "", errors.New(string(out) + err.Error())
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := binary(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

func built(t *testing.T) string {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

const nobody = 65532

// bare returns a folder with the binary and a place for data, as the image has them,
// and what runs a program in it as an unprivileged user: a chroot if we are root, and
// a user namespace of its own otherwise.
func bare(t *testing.T) (dir string, jail *syscall.SysProcAttr) {
	t.Helper()
	data, err := os.ReadFile(built(t))
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	for path, mode := range map[string]os.FileMode{".": 0o755, "data": 0o700, "etc": 0o755, "etc/retrysafe": 0o755} {
		path = filepath.Join(dir, path)
		if err := errors.Join(os.MkdirAll(path, mode), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "retrysafe"), data, 0o755); err != nil {
		t.Fatal(err)
	}
	jail = &syscall.SysProcAttr{Chroot: dir, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() == 0 {
		jail.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
		if err := os.Chown(filepath.Join(dir, "data"), nobody, nobody); err != nil {
			t.Fatal(err)
		}
	} else {
		jail.Cloneflags = syscall.CLONE_NEWUSER
		jail.UidMappings = []syscall.SysProcIDMap{{ContainerID: nobody, HostID: os.Getuid(), Size: 1}}
		jail.GidMappings = []syscall.SysProcIDMap{{ContainerID: nobody, HostID: os.Getgid(), Size: 1}}
	}
	return dir, jail
}

const (
	token        = "a-token-of-the-test"
	metricsToken = "a-token-of-the-scraper"
)

// TestImageRunsInABareChroot does what the image does: the binary, a configuration
// and an empty folder for data; no libc, no shell, no user database. A payment, a
// retry, an orderly end.
func TestImageRunsInABareChroot(t *testing.T) {
	t.Parallel()
	calls := make(chan struct{}, 10)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls <- struct{}{}
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "paid\n")
	}))
	defer upstream.Close()

	dir, jail := bare(t)
	conf, err := os.ReadFile("retrysafe.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "etc/retrysafe/retrysafe.yaml"), conf, 0o644); err != nil {
		t.Fatal(err)
	}
	gateway := exec.CommandContext(t.Context(), "/retrysafe", "gateway", "--config", "/etc/retrysafe/retrysafe.yaml")
	gateway.Err = nil // it is looked up in the chroot, not here
	gateway.SysProcAttr, gateway.Dir = jail, "/data"
	gateway.Env = []string{"RETRYSAFE_LISTEN=127.0.0.1:0", "RETRYSAFE_UPSTREAM=" + upstream.URL, "RETRYSAFE_ADMIN=127.0.0.1:0", "RETRYSAFE_ADMIN_TOKEN=" + token, "RETRYSAFE_METRICS_TOKEN=" + metricsToken}
	var log transcript
	gateway.Stdout, gateway.Stderr = &log, &log
	if err := gateway.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- gateway.Wait() }()
	var at string
	until(t, ended, &log, func() bool {
		_, rest, _ := strings.Cut(log.String(), "gateway on ")
		line, _, whole := strings.Cut(rest, "\n")
		at = line
		return whole
	})
	until(t, ended, &log, func() bool {
		answer, err := http.Get(at + "/.retrysafe/readyz")
		if err != nil {
			return false
		}
		_ = answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})

	for replay := range 2 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, at+"/payments", strings.NewReader(`{"amount": 1}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Idempotency-Key", `"a-key-of-the-test"`)
		r.Header.Set("Authorization", "Bearer me")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusCreated || string(body) != "paid\n" || (answer.Header.Get("Idempotent-Replayed") == "true") != (replay == 1) {
			t.Errorf("answer %d: %s %v %q", replay, answer.Status, answer.Header, body)
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodPatch} { // the file says that other requests need no key
		r, err := http.NewRequestWithContext(t.Context(), method, at+"/orders/1", strings.NewReader(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusCreated {
			t.Errorf("a %s without a key got %s, want it forwarded", method, answer.Status)
		}
	}
	_, rest, _ := strings.Cut(log.String(), "operators on ")
	admin, _, _ := strings.Cut(rest, "\n")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, admin+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+metricsToken)
	scraped, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(scraped.Body)
	_ = scraped.Body.Close()
	if scraped.StatusCode != http.StatusOK || !bytes.Contains(text, []byte("api_idempotency_reserve_replay_total 1")) {
		t.Errorf("a scrape got %s\n%s", scraped.Status, text)
	}
	if len(calls) != 3 {
		t.Errorf("the service was called %d times, want once for the key and once for each request without one", len(calls))
	}
	if err := gateway.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v\n%s", err, log.String())
	}
	if info, err := os.Stat(filepath.Join(dir, "data", "retrysafe.db")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the store's file: %v, %v", info, err)
	}
}

// until waits for what must come while the program runs.
func until(t *testing.T, ended <-chan error, log *transcript, done func() bool) {
	t.Helper()
	for !done() {
		select {
		case err := <-ended:
			t.Fatalf("it ended: %v\n%s", err, log.String())
		case <-t.Context().Done():
			t.Fatal("time is up")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// A transcript is what a program has printed so far.
type transcript struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *transcript) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(p)
}

func (s *transcript) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

// TestImageIsStatic: a binary with dynamic links would run here and not in the image.
func TestImageIsStatic(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "version", "-m", built(t)).Output()
	if err != nil || !bytes.Contains(out, []byte("CGO_ENABLED=0")) || !bytes.Contains(out, []byte("-trimpath=true")) {
		t.Errorf("%v\n%s", err, out)
	}
}

// The image is for production: the checks of "prove", the servers that they start and
// the library that only they need are not linked, and the command says where to find it.
func TestImageHasNoChecks(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "version", "-m", built(t)).Output()
	if err != nil || !bytes.Contains(out, []byte("-tags=noprove")) || bytes.Contains(out, []byte("porcupine")) {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = exec.CommandContext(t.Context(), built(t), "prove", "sim", "--seed", "1").CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 || !bytes.Contains(out, []byte("go install")) {
		t.Errorf("prove: %v\n%s", err, out)
	}
}

func TestSystemdUnit(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("systemd/retrysafe.service")
	if err != nil {
		t.Fatal(err)
	}
	const installed = "/usr/local/bin/retrysafe"
	if !bytes.Contains(text, []byte(installed+" gateway")) {
		t.Fatal("the unit starts something else")
	}
	unit := filepath.Join(t.TempDir(), "retrysafe.service")
	if err := os.WriteFile(unit, bytes.ReplaceAll(text, []byte(installed), []byte(built(t))), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", unit).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

// TestKubernetesManifest reads each object into the type that the API has for it;
// unknown fields are errors. The configuration inside is checked by the gateway.
func TestKubernetesManifest(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("kubernetes/sidecar.yaml")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]any{"ConfigMap": new(corev1.ConfigMap), "Deployment": new(appsv1.Deployment), "Service": new(corev1.Service)}
	for part := range strings.SplitSeq(string(text), "\n---\n") {
		var head struct{ Kind string }
		if err := yaml.Unmarshal([]byte(part), &head); err != nil {
			t.Fatal(err)
		}
		object := kinds[head.Kind]
		if object == nil {
			t.Errorf("there is a %q, which this test does not know", head.Kind)
			continue
		}
		if err := yaml.UnmarshalStrict([]byte(part), object); err != nil {
			t.Errorf("%s: %v", head.Kind, err)
		}
	}
	deployment := kinds["Deployment"].(*appsv1.Deployment)
	for _, c := range deployment.Spec.Template.Spec.Containers {
		if !strings.Contains(c.Image, "@sha256:") {
			t.Errorf("%s is not named by a digest", c.Image)
		}
		if c.Name == "retrysafe" && (c.SecurityContext.RunAsUser == nil || *c.SecurityContext.RunAsUser != nobody) {
			t.Error("the sidecar is not run as the image's own user")
		}
	}
	scraped(t, kinds["ConfigMap"].(*corev1.ConfigMap), deployment)
	dir := t.TempDir()
	conf := kinds["ConfigMap"].(*corev1.ConfigMap).Data["retrysafe.yaml"]
	for name, value := range map[string]string{"store": "postgres://retrysafe:a-password@postgres/retrysafe", "admin-token": token, "metrics-token": metricsToken} {
		if !strings.Contains(string(text), "--from-literal="+name+"=") {
			t.Errorf("the manifest does not say how the secret gets its %s", name)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
		conf = strings.ReplaceAll(conf, "/etc/retrysafe/secret/"+name, filepath.Join(dir, name))
	}
	validate(t, conf)
}

// scraped holds that a scraper reaches the metrics of a pod: the listener is on every
// address, its port is declared, annotations and the PodMonitor name it, and the token
// that they use is the one of the configuration.
func scraped(t *testing.T, conf *corev1.ConfigMap, deployment *appsv1.Deployment) {
	t.Helper()
	var gateway struct {
		Admin struct {
			Listen           string
			MetricsTokenFile string `json:"metrics_token_file"`
		}
	}
	if err := yaml.Unmarshal([]byte(conf.Data["retrysafe.yaml"]), &gateway); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("kubernetes/podmonitor.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var monitor struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Metadata   map[string]string `json:"metadata"`
		Spec       struct {
			Selector  struct{ MatchLabels map[string]string }
			Endpoints []struct {
				Port, Path    string
				Authorization struct{ Credentials struct{ Name, Key string } }
			} `json:"podMetricsEndpoints"`
		}
	}
	if err := yaml.UnmarshalStrict(text, &monitor); err != nil {
		t.Fatal(err)
	}
	pod := deployment.Spec.Template
	end := monitor.Spec.Endpoints[0]
	port := ""
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.Name == end.Port {
				port = strconv.Itoa(int(p.ContainerPort))
			}
		}
	}
	if port == "" || gateway.Admin.Listen != ":"+port || pod.Annotations["prometheus.io/port"] != port || pod.Annotations["prometheus.io/scrape"] != "true" || pod.Annotations["prometheus.io/path"] != end.Path {
		t.Errorf("the metrics are on %s, the pod's port is %q, its annotations are %v", gateway.Admin.Listen, port, pod.Annotations)
	}
	if end.Path != "/metrics" || end.Authorization.Credentials.Name != "retrysafe" || !strings.HasSuffix(gateway.Admin.MetricsTokenFile, "/"+end.Authorization.Credentials.Key) {
		t.Errorf("the monitor asks for %s with %v, and the token is in %s", end.Path, end.Authorization, gateway.Admin.MetricsTokenFile)
	}
	for name, value := range monitor.Spec.Selector.MatchLabels {
		if pod.Labels[name] != value {
			t.Errorf("the monitor looks for %s=%s, and pods have %v", name, value, pod.Labels)
		}
	}
}

// Prometheus of the compose file reaches every gateway, with the token that they have.
func TestComposeIsScraped(t *testing.T) {
	t.Parallel()
	project, err := compose(t, pinned())
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("prometheus.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var conf struct {
		Global  map[string]string
		Rules   []string `json:"rule_files"`
		Configs []struct {
			Name          string `json:"job_name"`
			Authorization struct {
				File string `json:"credentials_file"`
			}
			Static []struct{ Targets []string } `json:"static_configs"`
		} `json:"scrape_configs"`
	}
	if err := yaml.UnmarshalStrict(text, &conf); err != nil {
		t.Fatal(err)
	}
	rules, err := filepath.Abs("prometheus/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(project.Services["prometheus"].Volumes, func(v types.ServiceVolumeConfig) bool {
		return v.Source == rules && slices.Equal(conf.Rules, []string{v.Target})
	}) {
		t.Errorf("the rules are looked for in %v, and mounted are %+v", conf.Rules, project.Services["prometheus"].Volumes)
	}
	secret := project.Services["prometheus"].Secrets[0].Source
	if got := conf.Configs[0].Authorization.File; got != "/run/secrets/"+secret || project.Secrets[secret].Environment != "RETRYSAFE_METRICS_TOKEN" {
		t.Errorf("the token is in %s, and the secret is %+v", got, project.Secrets[secret])
	}
	for name, s := range project.Services {
		if !strings.HasPrefix(name, "gateway-") {
			continue
		}
		at := name + *s.Environment["RETRYSAFE_ADMIN"]
		if !slices.Contains(conf.Configs[0].Static[0].Targets, at) || *s.Environment["RETRYSAFE_METRICS_TOKEN"] != metricsToken {
			t.Errorf("%s is not scraped: %v", at, conf.Configs[0].Static)
		}
		for _, p := range s.Ports {
			if strings.HasSuffix(at, ":"+strconv.Itoa(int(p.Target))) {
				t.Errorf("the operators' port of %s is published", name)
			}
		}
	}
}

// The deployments use the version of PostgreSQL that the tests run.
func TestPostgresIsTheVersionOfTheTests(t *testing.T) {
	t.Parallel()
	installed, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres") // where internal/test/testservers finds it
	if err != nil || len(installed) == 0 {
		t.Skip("PostgreSQL is not installed here: scripts/setup does it")
	}
	newest := 0
	for _, path := range installed {
		n, err := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
		if err == nil {
			newest = max(newest, n)
		}
	}
	project, err := compose(t, pinned())
	if err != nil {
		t.Fatal(err)
	}
	want := "postgres:" + strconv.Itoa(newest)
	if image, _, _ := strings.Cut(project.Services["postgres"].Image, "@"); image != want {
		t.Errorf("compose.yaml has %s, and the tests run %s", image, want)
	}
	script, err := os.ReadFile("pin")
	if err != nil || !strings.Contains(string(script), "digest "+want+")") {
		t.Errorf("pin looks up another version than %s (%v)", want, err)
	}
}

func TestConfiguration(t *testing.T) {
	t.Parallel()
	conf, err := os.ReadFile("retrysafe.yaml")
	if err != nil {
		t.Fatal(err)
	}
	validate(t, string(conf), "RETRYSAFE_ADMIN_TOKEN="+token)
}

func validate(t *testing.T, conf string, env ...string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "retrysafe.yaml")
	if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	check := exec.CommandContext(t.Context(), built(t), "config", "validate", path)
	check.Env = env
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("config validate: %v\n%s", err, out)
	}
}

// pinned are the variables that compose.yaml wants, as deploy/pin writes them.
func pinned() types.Mapping {
	digest := "sha256:" + strings.Repeat("0", 64)
	return types.Mapping{
		"GO_DIGEST": digest, "POSTGRES_DIGEST": digest, "PYTHON_DIGEST": digest, "PROMETHEUS_DIGEST": digest,
		"POSTGRES_PASSWORD": "a-password", "RETRYSAFE_ADMIN_TOKEN": token, "RETRYSAFE_METRICS_TOKEN": metricsToken,
	}
}

// compose reads compose.yaml as docker compose would: schema, variables, anchors.
func compose(t *testing.T, env types.Mapping) (*types.Project, error) {
	t.Helper()
	text, err := os.ReadFile("compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	return loader.LoadWithContext(context.WithoutCancel(t.Context()), types.ConfigDetails{
		WorkingDir:  dir,
		ConfigFiles: []types.ConfigFile{{Filename: "compose.yaml", Content: text}},
		Environment: env,
	})
}

// No secret and no image has a default: without one of them compose says what to do.
func TestComposeHasNoDefaultPasswordAndPinsItsImages(t *testing.T) {
	t.Parallel()
	for name := range pinned() {
		env := pinned()
		delete(env, name)
		if _, err := compose(t, env); err == nil || !strings.Contains(err.Error(), "run deploy/pin") {
			t.Errorf("without %s: %v", name, err)
		}
	}
	project, err := compose(t, pinned())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range project.Services {
		if s.Build == nil && !strings.Contains(s.Image, "@sha256:") {
			t.Errorf("%s: %s is not named by its digest", s.Name, s.Image)
		}
	}
}

// Pin writes what compose wants, for its owner's eyes, and keeps the secrets when it is run
// again.
func TestPin(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script, err := os.ReadFile("pin")
	if err != nil {
		t.Fatal(err)
	}
	docker := "#!/bin/sh\n[ \"$1 $2 $3\" = 'buildx imagetools inspect' ] && printf 'Name:   %s\\nDigest:    sha256:%s\\n\\nManifests:\\n  Name: x\\n  Digest: no\\n' \"$4\" \"$N\"\n"
	for name, text := range map[string]string{"pin": string(script), "docker": docker} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	run := func(n string) map[string]string {
		t.Helper()
		pin := exec.CommandContext(t.Context(), filepath.Join(dir, "pin"))
		pin.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "N=" + n}
		if out, err := pin.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		text, err := os.ReadFile(filepath.Join(dir, ".env"))
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			got[name] = value
		}
		return got
	}
	first, again := run(strings.Repeat("1", 64)), run(strings.Repeat("2", 64))
	for name := range pinned() {
		isDigest := strings.HasSuffix(name, "_DIGEST")
		if len(first[name]) < 16 || isDigest != strings.HasPrefix(first[name], "sha256:") || (first[name] == again[name]) == isDigest {
			t.Errorf("%s is %q, and then %q", name, first[name], again[name])
		}
	}
	if info, err := os.Stat(filepath.Join(dir, ".env")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf(".env: %v, %v", info, err)
	}
	bad := exec.CommandContext(t.Context(), filepath.Join(dir, "pin"))
	bad.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "N=none"}
	if out, err := bad.CombinedOutput(); err == nil {
		t.Errorf("a digest that is none is accepted:\n%s", out)
	}
	if kept := run(strings.Repeat("3", 64)); kept["POSTGRES_PASSWORD"] != first["POSTGRES_PASSWORD"] {
		t.Error("a failed run has lost the secrets")
	}
}

func TestCompose(t *testing.T) {
	t.Parallel()
	project, err := compose(t, pinned())
	if err != nil {
		t.Fatal(err)
	}
	a, b := project.Services["gateway-a"], project.Services["gateway-b"]
	if a.Environment["RETRYSAFE_STORE"] == nil || b.Environment["RETRYSAFE_STORE"] == nil || *a.Environment["RETRYSAFE_STORE"] != *b.Environment["RETRYSAFE_STORE"] {
		t.Error("the two gateways have not one store")
	}
	for _, s := range project.Services {
		for _, v := range s.Volumes {
			if _, err := os.Stat(v.Source); v.Type == types.VolumeTypeBind && err != nil {
				t.Errorf("%s mounts what is not there: %v", s.Name, err)
			}
		}
	}
}

// TestDockerfile: the files that are copied exist, the image does not run as root, and
// the one that it is built in is named by its digest.
func TestDockerfile(t *testing.T) {
	t.Parallel()
	f, err := os.Open("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	user := ""
	for lines := bufio.NewScanner(f); lines.Scan(); {
		words := strings.Fields(lines.Text())
		switch {
		case len(words) == 0 || strings.HasPrefix(words[0], "#"):
		case words[0] == "FROM":
			user = ""
			if words[1] != "scratch" && !strings.HasSuffix(words[1], "@${GO_DIGEST}") {
				t.Errorf("%s: there is no digest", lines.Text())
			}
		case words[0] == "USER":
			user = words[1]
		case words[0] == "COPY" && !strings.HasPrefix(words[1], "--from"):
			for _, source := range words[1 : len(words)-1] {
				if _, err := os.Stat(filepath.Join("..", source)); err != nil {
					t.Errorf("%s: %v", lines.Text(), err)
				}
			}
		}
	}
	if user != "65532:65532" {
		t.Errorf("the image runs as %q", user)
	}
}
