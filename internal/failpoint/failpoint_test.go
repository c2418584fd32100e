package failpoint_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// W84: what is released has no failpoints: neither their code nor their names, nor
// the variable that would set them off.
func TestW84_ReleaseHasNoFailpoints(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "retrysafe")
	goes(t, "build", "-o", binary, "../../cmd/retrysafe")
	for symbol := range strings.Lines(goes(t, "tool", "nm", binary)) {
		if strings.Contains(symbol, "internal/failpoint") {
			t.Errorf("the binary has %s", symbol)
		}
	}
	data, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"RETRYSAFE_FAILPOINT", "settle.confirmed"} {
		if bytes.Contains(data, []byte(word)) {
			t.Errorf("the binary has the word %q", word)
		}
	}
	run := exec.CommandContext(t.Context(), binary, "version")
	run.Env = append(os.Environ(), "RETRYSAFE_FAILPOINT=nonsense") // a program that had them would not start
	if out, err := run.CombinedOutput(); err != nil || bytes.Contains(out, []byte("failpoint")) {
		t.Errorf("the variable is heard: %v\n%s", err, out)
	}
}

func goes(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", args[0], err, stderr.Bytes())
	}
	return string(out)
}
