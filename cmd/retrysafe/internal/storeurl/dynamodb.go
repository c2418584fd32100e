package storeurl

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/logging"

	"github.com/retrysafe/retrysafe/store/dynamostore"
)

// DynamoDB is the kind of a store in a table of Amazon DynamoDB.
const DynamoDB = "dynamodb"

const dynamoForm = "dynamodb://REGION/TABLE"

var (
	regionName = regexp.MustCompile(`^[a-z]{2}(-[a-z]+)+-[0-9]+$`)
	tableName  = regexp.MustCompile(`^[A-Za-z0-9_.-]{3,255}$`)
)

// parseDynamoDB parses dynamodb://REGION/TABLE, with an optional endpoint=URL.
func parseDynamoDB(text string) (Address, error) {
	u, err := url.Parse(text)
	if err != nil {
		return Address{}, fmt.Errorf("a DynamoDB URL cannot be read; it is %s: %w", dynamoForm, errKinds) // without err, which quotes it
	}
	if u.User != nil {
		return Address{}, errors.New("a DynamoDB URL has no user and no password: the credentials come from the environment, a profile or the machine's role, as for every AWS program")
	}
	a := Address{Kind: DynamoDB, Region: u.Host, Table: strings.TrimPrefix(u.Path, "/")}
	q := u.Query()
	a.Endpoint = q.Get("endpoint")
	q.Del("endpoint")
	switch endpoint, err := url.Parse(a.Endpoint); {
	case !regionName.MatchString(a.Region):
		return Address{}, fmt.Errorf("%q is no AWS region; the URL is %s, for example dynamodb://eu-central-1/retrysafe", a.Region, dynamoForm)
	case !tableName.MatchString(a.Table):
		return Address{}, fmt.Errorf("%q is no name of a DynamoDB table, which has 3 to 255 letters, digits, _ . or -; the URL is %s", a.Table, dynamoForm)
	case len(q) > 0 || u.Fragment != "":
		return Address{}, fmt.Errorf("a DynamoDB URL takes only endpoint=URL behind the table; the URL is %s", dynamoForm)
	case a.Endpoint != "" && (err != nil || endpoint.Host == "" || endpoint.Scheme != "https" && endpoint.Scheme != "http"):
		return Address{}, errors.New("endpoint in a DynamoDB URL is no URL; write endpoint=https://host, or http://127.0.0.1:8000 for a server on this machine")
	}
	return a, nil
}

// openDynamoDB opens the table. Connections are kept as long as the store is open.
func openDynamoDB(ctx context.Context, a *Address, opts *Options) (*Opened, error) {
	client, transport, err := a.DynamoDBClient(ctx)
	if err != nil {
		return nil, err
	}
	s, err := dynamostore.Open(ctx, client, a.Table, &dynamostore.Options{SkipCreate: opts.SkipMigrations, Moving: opts.Moving})
	if err != nil {
		transport.CloseIdleConnections()
		return nil, err
	}
	return &Opened{Store: s, Kind: DynamoDB, Shared: true, closer: closeFunc(transport.CloseIdleConnections)}, nil
}

type closeFunc func()

func (f closeFunc) Close() error { f(); return nil }

// DynamoDBClient returns a client with the credentials of the environment, and its
// connections. A server on this machine, as DynamoDB local or dynalite is, takes any
// credentials.
func (a *Address) DynamoDBClient(ctx context.Context) (*dynamodb.Client, *http.Transport, error) {
	// What the SDK would log is in the errors too.
	from := []func(*config.LoadOptions) error{config.WithRegion(a.Region), config.WithLogger(logging.Nop{})}
	if a.isLocal() {
		from = append(from, config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider("local", "local", "")))
	}
	cfg, err := config.LoadDefaultConfig(ctx, from...)
	if err != nil {
		return nil, nil, fmt.Errorf("configuration of AWS: %w", err)
	}
	common, ok := cfg.HTTPClient.(*awshttp.BuildableClient) // it has the certificates that the environment names
	if !ok {
		common = awshttp.NewBuildableClient()
	}
	transport := common.GetTransport()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost, transport.IdleConnTimeout = 0, 256, 50*time.Second
	transport.DialContext, transport.TLSHandshakeTimeout = (&net.Dialer{Timeout: 2 * time.Second}).DialContext, 3*time.Second
	return dynamodb.NewFromConfig(cfg, func(o *dynamodb.Options) {
		o.HTTPClient = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		if a.Endpoint != "" {
			o.BaseEndpoint = &a.Endpoint
		}
	}), transport, nil
}

// DynamoDBURL returns the URL of a table.
func (a *Address) DynamoDBURL() string {
	u := url.URL{Scheme: DynamoDB, Host: a.Region, Path: "/" + a.Table}
	if a.Endpoint != "" {
		u.RawQuery = url.Values{"endpoint": {a.Endpoint}}.Encode()
	}
	return u.String()
}

// DropTable deletes the table, whatever protects it. A table that is not there is gone.
func (a *Address) DropTable(ctx context.Context) error {
	client, transport, err := a.DynamoDBClient(ctx)
	if err != nil {
		return err
	}
	defer transport.CloseIdleConnections()
	_, err = client.UpdateTable(ctx, &dynamodb.UpdateTableInput{TableName: &a.Table, DeletionProtectionEnabled: aws.Bool(false)})
	if err == nil || !isMissing(err) {
		_, err = client.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: &a.Table}) // it may never have been protected
	}
	if isMissing(err) {
		return nil
	}
	return err
}

func isMissing(err error) bool {
	_, missing := errors.AsType[*types.ResourceNotFoundException](err)
	return missing
}

// isLocal reports whether the endpoint is a server on this machine.
func (a *Address) isLocal() bool {
	u, err := url.Parse(a.Endpoint)
	if err != nil || a.Endpoint == "" {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || err == nil && ip.IsLoopback()
}

// MaxAnswer is how many bytes of an answer the store can keep, or 0 if it keeps what a
// gateway takes.
func (a *Address) MaxAnswer() int64 {
	if a.Kind == DynamoDB {
		return dynamostore.MaxBody
	}
	return 0
}
