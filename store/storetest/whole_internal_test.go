package storetest

import (
	"reflect"
	"slices"
	"testing"

	"github.com/retrysafe/retrysafe"
)

// ofTheStore are the fields of a record that its store sets.
var ofTheStore = []string{"Revision", "Deadline", "CreatedAt", "UpdatedAt", "ReadAt"}

// The rules about whole records set every field that is a caller's, and see when one is
// lost. A field that is new in a record fails this test until they do.
func TestWholeRecordsAreWhole(t *testing.T) {
	t.Parallel()
	k := &kit{}
	whole := func() retrysafe.Record { return k.whole("k", "text").Record }
	eachField(reflect.ValueOf(whole()), "", func(path string, at []int) {
		got := whole()
		got.Result, got.Inquiry.Notes = new(retrysafe.Result), slices.Clone(got.Inquiry.Notes)
		*got.Result = *whole().Result
		got.Owner = retrysafe.Owner{1}
		want := got
		want.Result, want.Inquiry.Notes = new(retrysafe.Result), slices.Clone(got.Inquiry.Notes)
		*want.Result = *got.Result
		if d := diff(got, want); d != "" {
			t.Fatalf("equal records differ: %s", d)
		}
		field := reflect.ValueOf(&got).Elem()
		for _, i := range at {
			if field.Kind() == reflect.Pointer {
				field = field.Elem()
			}
			if field.Kind() == reflect.Slice {
				field = field.Index(0)
			}
			field = field.Field(i)
		}
		if field.IsZero() {
			t.Errorf("%s is not set", path)
		}
		field.SetZero()
		if diff(got, want) == "" {
			t.Errorf("a record without its %s looks whole", path)
		}
	})
}

// eachField calls do for each field of a record that is a caller's, with the way to it.
func eachField(v reflect.Value, path string, do func(path string, at []int), way ...int) {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Slice {
		if v.Kind() == reflect.Slice {
			v = v.Index(0)
		} else {
			v = v.Elem()
		}
	}
	for i := range v.NumField() {
		name, field := v.Type().Field(i).Name, v.Field(i)
		at := append(slices.Clone(way), i)
		switch kind := field.Type(); {
		case path == "" && slices.Contains(ofTheStore, name):
		case kind.Kind() == reflect.Struct && kind.Name() != "Time", kind.Kind() == reflect.Pointer, kind.Kind() == reflect.Slice && kind.Elem().Kind() == reflect.Struct:
			eachField(field, path+name+".", do, at...)
		default:
			do(path+name, at)
		}
	}
}
