package listener

import "net/http"

// finalOnly is the writer of a client that knows no informational answers: one of
// HTTP/1.0, as proxies speak it to what is behind them, takes the first answer that
// comes for the answer. Net/http would send it all the same.
type finalOnly struct{ http.ResponseWriter }

func (w finalOnly) WriteHeader(status int) {
	if status < 100 || status > 199 {
		w.ResponseWriter.WriteHeader(status)
	}
}

// Unwrap lets http.ResponseController reach the connection.
func (w finalOnly) Unwrap() http.ResponseWriter { return w.ResponseWriter }
