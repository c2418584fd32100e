package rpckey

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/fields"
)

// Fields are a choice of what counts in a fingerprint, as [Options] has it. The order
// within a list does not matter.
type Fields struct {
	Exclude  []string // fields of the request message, as paths of names
	Metadata []string // names of request metadata
}

// choice is a choice of what counts, compiled.
type choice struct {
	id       choiceID
	keyField string   // never counts
	exclude  []string // paths
	metadata []string // names in lower case, in order
	trees    sync.Map // full name of a message → *fieldTree
}

// choiceID names a choice: the beginning of a hash of it. Zero is no choice: every field
// counts, and no metadata.
type choiceID [4]byte

// newChoice compiles a choice.
func newChoice(f Fields, keyField string) *choice {
	c := &choice{keyField: keyField, exclude: sorted(f.Exclude)}
	for _, name := range f.Metadata {
		c.metadata = append(c.metadata, strings.ToLower(name))
	}
	c.metadata = sorted(c.metadata)
	if len(c.exclude)+len(c.metadata) > 0 {
		b := []byte("retrysafe rpc fields 1\x00")
		for _, list := range [...][]string{c.exclude, c.metadata} {
			b = binary.AppendUvarint(b, uint64(len(list)))
			for _, s := range list {
				b = fields.Append(b, s)
			}
		}
		sum := sha256.Sum256(b)
		copy(c.id[:], sum[:])
		c.id[0] |= 1 // never zero
	}
	return c
}

// sorted returns a list in order, each element once.
func sorted(list []string) []string {
	list = slices.Clone(list)
	slices.Sort(list)
	return slices.Compact(list)
}

// choicesOf returns the choices that records may have been stored under. The first one is
// in force.
func choicesOf(o *Options) []*choice {
	all := []*choice{newChoice(Fields{Exclude: o.Exclude, Metadata: o.FingerprintMetadata}, o.KeyField)}
	for _, f := range o.FormerFields {
		all = append(all, newChoice(f, o.KeyField))
	}
	return append(all, newChoice(Fields{}, o.KeyField))
}

// mark returns a fingerprint that names this choice.
func (c *choice) mark(f retrysafe.Fingerprint) retrysafe.Fingerprint {
	if c.id != (choiceID{}) {
		f.Alg |= chosenFields
		copy(f.Sum[len(f.Sum)-len(c.id):], c.id[:])
	}
	return f
}

// choiceOf returns the choice that a stored fingerprint was computed by, or nil if this
// guard does not know it.
func (g *Guard) choiceOf(stored retrysafe.Fingerprint) *choice {
	var id choiceID
	if stored.Alg&chosenFields != 0 {
		id = choiceID(stored.Sum[len(stored.Sum)-len(id):])
	}
	for _, c := range g.choices {
		if c.id == id {
			return c
		}
	}
	return nil
}

// excluded returns the fields of a request message that do not count.
func (c *choice) excluded(md protoreflect.MessageDescriptor) *fieldTree {
	if c.keyField == "" && len(c.exclude) == 0 {
		return nil
	}
	if known, ok := c.trees.Load(md.FullName()); ok {
		return known.(*fieldTree)
	}
	t := new(fieldTree)
	for _, path := range c.exclude {
		one := new(fieldTree)
		if one.add(md, path) == nil { // otherwise this message does not have it
			_ = t.add(md, path)
		}
	}
	if c.keyField != "" {
		_ = t.add(md, c.keyField) // the key was read from it
	}
	known, _ := c.trees.LoadOrStore(md.FullName(), t)
	return known.(*fieldTree)
}

// checkFormer reports whether former choices could have been in force. The schema may
// have lost their fields, so only the names are checked.
func checkFormer(former []Fields) error {
	for _, f := range former {
		for _, path := range f.Exclude {
			for name := range strings.SplitSeq(path, ".") {
				if !protoreflect.Name(name).IsValid() {
					return fmt.Errorf("option FormerFields: %q is no path of field names; write it as Exclude had it, such as device.battery", path)
				}
			}
		}
	}
	return nil
}
