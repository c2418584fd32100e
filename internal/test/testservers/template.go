package testservers

import (
	"context"
	"path/filepath"
	"sync"
)

// templates are data directories that initdb has made, by the directory of its program:
// once in each process, because a copy of one costs a fraction.
var templates struct {
	mu    sync.Mutex
	paths map[string]string
}

func templateData(ctx context.Context, bin string) (string, error) {
	templates.mu.Lock()
	defer templates.mu.Unlock()
	if path, ok := templates.paths[bin]; ok {
		return path, nil
	}
	dir, err := newDir(memory(), "template")
	if err != nil {
		return "", err
	}
	data := filepath.Join(dir, "data")
	// Without sync: a template that a crash of the machine has damaged is made anew.
	err = run(ctx, filepath.Join(bin, "initdb"), "-D", data, "-U", superuser, "--auth=trust",
		"--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions")
	if err != nil {
		return "", err
	}
	if templates.paths == nil {
		templates.paths = map[string]string{}
	}
	templates.paths[bin] = data
	return data, nil
}

// forgetTemplates is for when the home is removed.
func forgetTemplates() {
	templates.mu.Lock()
	defer templates.mu.Unlock()
	clear(templates.paths)
}
