package demo

import (
	"context"
	"errors"
	"net/http"
	"strings"
)

// tenants maps tokens to callers. In a real service the identity provider does that.
var tenants = map[string]string{"demo-a": "tenant-a", "demo-b": "tenant-b", trafficToken: trafficTenant}

type tenantKey struct{}

// authenticate identifies the caller before anything else is done: no stored answer is
// shown to an unknown caller.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		tenant, known := tenants[token]
		if !bearer || !known {
			w.Header().Set("WWW-Authenticate", "Bearer")
			reply(w, http.StatusUnauthorized, problem{"send Authorization: Bearer demo-a, or demo-b"})
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), tenantKey{}, tenant)))
	})
}

// tenantOf returns the tenant that owns the key of a request: the authenticated
// caller's.
func tenantOf(r *http.Request) (string, error) {
	tenant, ok := r.Context().Value(tenantKey{}).(string)
	if !ok {
		return "", errors.New("the caller is not authenticated")
	}
	return tenant, nil
}
