package config

import (
	"context"
	"time"
)

// Paths returns the path of each field; those of a route are the ones of defaults.
func Paths() []string {
	var all []string
	for path := range Defaults() {
		all = append(all, path)
	}
	return all
}

// Defaults returns what each field says where nothing is said, by its path.
func Defaults() map[string]string {
	c := Default()
	found := map[string]string{"routes": "", "match": ""}
	var walk func(path string, s section)
	walk = func(path string, s section) {
		for _, f := range s {
			at := child(path, f.name)
			switch v := f.value.(type) {
			case section:
				walk(at, v)
			case tenant:
				walk(at, v.to.fields())
			case interface{ standard() section }:
				walk(at, v.standard())
			case routes:
			default:
				found[at] = ""
				if n := written(v); n != nil {
					found[at] = n.Value
					for i, item := range n.Content {
						if i > 0 {
							found[at] += ", "
						}
						found[at] += item.Value
					}
				}
			}
		}
	}
	walk("", c.fields())
	return found
}

// Watcher is a watcher that has had its first look.
type Watcher struct{ *watcher }

// NewWatcher returns a watcher that looks this often of its own.
func NewWatcher(poll time.Duration, paths ...string) Watcher {
	w := newWatcher(paths)
	w.poll = poll
	return Watcher{w}
}

// Run is [Watch] after the first look.
func (w Watcher) Run(ctx context.Context, changed func()) { w.run(ctx, changed) }
