package demo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/retrysafe/retrysafe"
)

const maxBody = 64 << 10

type problem struct {
	Error string `json:"error"`
}

// answer returns an answer with v as its body.
func answer(status int, v any, location string) retrysafe.Result {
	body, _ := json.Marshal(v) // plain values always marshal
	header := map[string][]string{"Content-Type": {"application/json"}}
	if location != "" {
		header["Location"] = []string{location}
	}
	return retrysafe.Result{Status: status, Header: header, Body: append(body, '\n')}
}

func send(w http.ResponseWriter, a retrysafe.Result) {
	for name, values := range a.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body) // a client that is gone asks again
}

func reply(w http.ResponseWriter, status int, v any) { send(w, answer(status, v, "")) }

// read returns the order in a request. If there is none, it answers with an error.
func read(w http.ResponseWriter, r *http.Request) (in order, ok bool) {
	body, err := io.ReadAll(r.Body) // the guard has bounded it
	if err == nil {
		err = decode(body, &in)
	}
	if err != nil {
		reply(w, http.StatusBadRequest, problem{err.Error()})
	}
	return in, err == nil
}

// decode decodes one JSON value and validates it.
func decode(body []byte, into interface{ check() error }) error {
	err := decodeStrictly(body, into)
	if err == nil {
		err = into.check()
	}
	if err != nil {
		return fmt.Errorf(`send {"amount": 1200, "currency": "EUR", "account_id": 1}: %w`, err)
	}
	return nil
}

func decodeStrictly(body []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is data after the object")
	}
	return nil
}

func (o *order) check() error {
	switch {
	case o.Amount <= 0:
		return errors.New("amount is not positive; it is in cents")
	case !isCurrency(o.Currency):
		return errors.New("currency is not three capital letters")
	case o.AccountID <= 0:
		return errors.New("account_id is not positive")
	}
	return nil
}

func isCurrency(s string) bool {
	for i := range len(s) {
		if s[i] < 'A' || s[i] > 'Z' {
			return false
		}
	}
	return len(s) == 3
}
