package storetest_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe"
)

var timeFlaws = []flaw{{
	name:   "heartbeat does not move the deadline",
	breaks: []string{"deadline counts from the step"},
	bend: func(b *bent) {
		var first sync.Map
		b.see = func(_ string, r *retrysafe.Record) {
			at, _ := first.LoadOrStore(r.Ref, r.Deadline)
			r.Deadline = at.(time.Time)
		}
	},
}, {
	name:   "deadline counts by the node's clock",
	breaks: []string{"times are the store's"},
	bend: func(b *bent) {
		node := b.clock()
		b.see = func(_ string, r *retrysafe.Record) { r.Deadline = node.Add(r.Deadline.Sub(r.UpdatedAt)) }
	},
}, {
	name:   "clock stands still",
	breaks: []string{"due comes with the clock"},
	bend: func(b *bent) {
		start := b.clock()
		b.see = func(_ string, r *retrysafe.Record) { r.ReadAt = start }
	},
}, {
	name:   "list reads at another time",
	breaks: []string{"read time never goes back"},
	bend: func(b *bent) {
		b.see = func(method string, r *retrysafe.Record) {
			if method == "list" {
				r.ReadAt = r.ReadAt.Add(-time.Minute)
			}
		}
	},
}, {
	name:   "revision is the clock's",
	breaks: []string{"clock that is set back repeats no revision"},
	only:   true,
	bend: func(b *bent) {
		b.see = func(method string, r *retrysafe.Record) {
			if now := b.clock(); method == "swap" && now.Before(r.UpdatedAt) {
				r.Revision = now.UnixMicro()
			}
		}
	},
}, {
	name:   "key that was purged begins with the clock",
	breaks: []string{"clock that is set back repeats no revision"},
	only:   true,
	bend: func(b *bent) {
		high := map[retrysafe.Ref]int64{}
		b.see = func(method string, r *retrysafe.Record) {
			if before, again := high[r.Ref]; method == "create" && again && r.Revision > before {
				r.Revision = before
			}
			if method == "swap" && r.State == retrysafe.StateCompleted && b.clock().After(r.Deadline) {
				high[r.Ref] = r.Revision
			}
		}
	},
}, {
	name:   "time of a write goes back with the clock",
	breaks: []string{"clock that is set back repeats no revision"},
	only:   true,
	bend: func(b *bent) {
		b.see = func(_ string, r *retrysafe.Record) {
			if now := b.clock(); now.Before(r.UpdatedAt) {
				r.Deadline, r.UpdatedAt = r.Deadline.Add(now.Sub(r.UpdatedAt)), now
			}
		}
	},
}}

var contentFlaws = []flaw{{
	name:   "a relaxed create has no effect mode",
	breaks: []string{"every step stores every field"},
	only:   true,
	bend: func(b *bent) {
		b.create = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			if w.Relaxed {
				w.Effects = 0
			}
			return b.Store.Create(ctx, w)
		}
	},
}, {
	name:   "an announced claim loses its reason",
	breaks: []string{"every step stores every field"},
	only:   true,
	bend: func(b *bent) {
		b.swap = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			if w.Announce && w.Overwrite {
				w.Reason = ""
			}
			return b.Store.Swap(ctx, w)
		}
	},
}, {
	name:   "a transaction creates without a checkpoint",
	breaks: []string{"every step of a transaction stores every field"},
	only:   true,
	bend: func(b *bent) {
		b.bendTx(func(tx *bentTx) {
			tx.create = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
				w.Checkpoint = retrysafe.Checkpoint{}
				return tx.Tx.Create(ctx, w)
			}
		})
	},
}, {
	name:   "a transaction swaps without the notes",
	breaks: []string{"every step of a transaction stores every field"},
	only:   true,
	bend: func(b *bent) {
		b.bendTx(func(tx *bentTx) {
			tx.swap = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
				w.Inquiry.Notes = nil
				return tx.Tx.Swap(ctx, w)
			}
		})
	},
}, {
	name:   "header keeps its first value only",
	breaks: []string{"answers are byte-exact"},
	only:   true,
	bend: func(b *bent) {
		b.see = onResult(func(r *retrysafe.Result) {
			header := make(map[string][]string)
			for name, values := range r.Header {
				header[name] = values[:1]
			}
			r.Header = header
		})
	},
}, {
	name:   "header goes through JSON",
	breaks: []string{"answers are byte-exact"},
	only:   true,
	bend: func(b *bent) {
		b.see = onResult(func(r *retrysafe.Result) {
			text, _ := json.Marshal(r.Header)
			r.Header = nil
			json.Unmarshal(text, &r.Header)
		})
	},
}, {
	name:   "body goes through JSON",
	breaks: []string{"answers are byte-exact"},
	only:   true,
	bend: func(b *bent) {
		b.see = onResult(func(r *retrysafe.Result) {
			var v any
			if json.Unmarshal(r.Body, &v) == nil {
				r.Body, _ = json.Marshal(v)
			}
		})
	},
}, {
	name:   "omitted is lost",
	breaks: []string{"answers are byte-exact"},
	only:   true,
	bend: func(b *bent) {
		b.see = onResult(func(r *retrysafe.Result) { r.Omitted = false })
	},
}, {
	name:   "body is cut at 64 KiB",
	breaks: []string{"large answers are byte-exact"},
	only:   true,
	bend: func(b *bent) {
		b.see = onResult(func(r *retrysafe.Result) { r.Body = r.Body[:min(len(r.Body), 64<<10)] })
	},
}, {
	name:   "unknown version becomes the known one",
	breaks: []string{"every value survives"},
	only:   true,
	bend: func(b *bent) {
		b.see = func(_ string, r *retrysafe.Record) { r.Version = min(r.Version, retrysafe.RecordVersion) }
	},
}, {
	name:   "retention is kept in seconds",
	breaks: []string{"every value survives"},
	only:   true,
	bend: func(b *bent) {
		b.see = func(_ string, r *retrysafe.Record) { r.Retain = r.Retain.Truncate(time.Second) }
	},
}, {
	name:   "reason must be UTF-8",
	breaks: []string{"texts and bytes survive"},
	only:   true,
	bend: func(b *bent) {
		b.see = func(_ string, r *retrysafe.Record) { r.Reason = strings.ToValidUTF8(r.Reason, "?") }
	},
}, {
	name:   "keys that differ in case are one",
	breaks: []string{"keys are opaque bytes"},
	only:   true,
	bend: func(b *bent) {
		rename(b, func(ref retrysafe.Ref) retrysafe.Ref { ref.Key = strings.ToLower(ref.Key); return ref })
	},
}, {
	name:   "keys lose trailing spaces",
	breaks: []string{"keys are opaque bytes"},
	only:   true,
	bend: func(b *bent) {
		rename(b, func(ref retrysafe.Ref) retrysafe.Ref { ref.Key = strings.TrimRight(ref.Key, " "); return ref })
	},
}, {
	name:   "keys must be UTF-8",
	breaks: []string{"keys are opaque bytes"},
	only:   true,
	bend: func(b *bent) {
		rename(b, func(ref retrysafe.Ref) retrysafe.Ref { ref.Key = strings.ToValidUTF8(ref.Key, "\ufffd"); return ref })
	},
}, {
	name:   "scope and key are joined",
	breaks: []string{"scopes isolate"},
	bend: func(b *bent) {
		rename(b, func(ref retrysafe.Ref) retrysafe.Ref { return retrysafe.Ref{Scope: "all", Key: ref.Scope + ref.Key} })
	},
}, {
	name:   "scope is not part of the key",
	breaks: []string{"scopes isolate", "absent key is not found"},
	bend: func(b *bent) {
		rename(b, func(ref retrysafe.Ref) retrysafe.Ref { ref.Scope = "all"; return ref })
	},
}}

// onResult changes a copy of every answer that the store returns.
func onResult(change func(*retrysafe.Result)) func(string, *retrysafe.Record) {
	return func(_ string, r *retrysafe.Record) {
		if r.Result != nil {
			c := *r.Result
			change(&c)
			r.Result = &c
		}
	}
}

// rename makes the store keep each key under another name.
func rename(b *bent, name func(retrysafe.Ref) retrysafe.Ref) {
	write := func(step func(context.Context, retrysafe.Write) (retrysafe.Record, error)) func(context.Context, retrysafe.Write) (retrysafe.Record, error) {
		return func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			ref := w.Ref
			w.Ref = name(ref)
			got, err := step(ctx, w)
			got.Ref = ref
			return got, err
		}
	}
	b.create, b.swap = write(b.Store.Create), write(b.Store.Swap)
	b.load = func(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
		got, err := b.Store.Load(ctx, name(ref))
		got.Ref = ref
		return got, err
	}
}
