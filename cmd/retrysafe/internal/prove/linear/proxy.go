package linear

import (
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
	"github.com/retrysafe/retrysafe/internal/test/netfault"
)

// proxied returns a proxy before a store's server, and the store's URL by way of it.
// There is none for a store without a server, nor where the server's name matters:
// behind TLS that looks at it, or on a socket.
func proxied(store string) (*netfault.Proxy, string, error) {
	at, err := storeurl.Parse(store)
	if err == nil && at.Kind == storeurl.DynamoDB {
		return proxiedDynamoDB(at)
	}
	if err != nil || at.Kind != storeurl.Postgres {
		return nil, store, err
	}
	config, err := pgconn.ParseConfig(at.URL)
	if err != nil {
		return nil, "", err
	}
	if strings.HasPrefix(config.Host, "/") || config.TLSConfig != nil && !config.TLSConfig.InsecureSkipVerify {
		return nil, store, nil
	}
	for _, other := range config.Fallbacks {
		if other.Host != config.Host || other.Port != config.Port {
			return nil, store, nil
		}
	}
	u, err := url.Parse(store)
	if err != nil {
		return nil, "", err
	}
	proxy, err := netfault.New(net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port))))
	if err != nil {
		return nil, "", err
	}
	q := u.Query()
	q.Del("host")
	q.Del("port")
	u.Host, u.RawQuery = proxy.Addr(), q.Encode()
	return proxy, u.String(), nil
}

// proxiedDynamoDB is proxied for a server of DynamoDB's protocol that is not behind TLS.
func proxiedDynamoDB(at storeurl.Address) (*netfault.Proxy, string, error) {
	endpoint, err := url.Parse(at.Endpoint)
	if err != nil || endpoint.Scheme != "http" {
		return nil, at.DynamoDBURL(), err
	}
	proxy, err := netfault.New(endpoint.Host)
	if err != nil {
		return nil, "", err
	}
	at.Endpoint = "http://" + proxy.Addr()
	return proxy, at.DynamoDBURL(), nil
}
