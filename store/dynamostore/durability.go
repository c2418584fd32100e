package dynamostore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// A Durability says what the table promises about a confirmed write.
type Durability struct {
	// Class is the best guarantee class that the table allows: B, or D if an acknowledged
	// answer can be lost, or not be seen by a retry. There is no class A: effects and answer
	// cannot commit together.
	Class string
	// Keys is about how many records there are. The service counts every six hours.
	Keys int64
	// Replicas are the other regions of a global table.
	Replicas []string
	// Expiry says that DynamoDB deletes expired records by itself.
	Expiry bool
	// Correction is by how much this machine's clock is corrected at present.
	Correction time.Duration
	// Caveats say, one line each, how an acknowledged answer can be lost or not be seen.
	Caveats []string
}

// String returns one line for the log at startup.
func (d Durability) String() string {
	s := fmt.Sprintf("class %s: DynamoDB, strongly consistent in its region, time to live %t", d.Class, d.Expiry)
	if d.Correction != 0 {
		s += fmt.Sprintf(", this machine's clock corrected by %v", d.Correction.Round(time.Millisecond))
	}
	if len(d.Caveats) > 0 {
		s += "; " + strings.Join(d.Caveats, "; ")
	}
	return s
}

// Durability asks the service. A program should log the result at startup.
func (s *Store) Durability(ctx context.Context) (d Durability, err error) {
	var found *dynamodb.DescribeTableOutput
	err = s.send(ctx, func(ctx context.Context) (err error) {
		found, err = s.client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &s.table})
		return err
	})
	if err != nil {
		return d, fmt.Errorf("durability of table %s: %w", s.table, s.explain(err))
	}
	t := found.Table
	d.Class, d.Keys, d.Correction = "B", max(aws.ToInt64(t.ItemCount)-1, 0), s.clock.correction() // one item describes the table
	for _, r := range t.Replicas {
		if name := aws.ToString(r.RegionName); name != s.client.Options().Region {
			d.Replicas = append(d.Replicas, name)
		}
	}
	if len(d.Replicas) > 0 && t.MultiRegionConsistency != types.MultiRegionConsistencyStrong {
		d.Class = "D"
		d.Caveats = append(d.Caveats, fmt.Sprintf("the table is a global one with eventual consistency: a retry that reaches %s before the record does runs again, and what this region confirmed last is missing there after a failover (let one region alone use the table, or create it with multi-region strong consistency)", strings.Join(d.Replicas, ", ")))
	}
	d.Expiry = s.expiryEnabled(ctx)
	return d, nil
}

// expiryEnabled reports whether DynamoDB deletes expired records. It is false if the
// server cannot tell.
func (s *Store) expiryEnabled(ctx context.Context) (enabled bool) {
	_ = s.send(ctx, func(ctx context.Context) error {
		reply, err := s.client.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: &s.table})
		if err != nil || reply.TimeToLiveDescription == nil {
			return err
		}
		on := reply.TimeToLiveDescription
		enabled = aws.ToString(on.AttributeName) == attrExpires && (on.TimeToLiveStatus == types.TimeToLiveStatusEnabled || on.TimeToLiveStatus == types.TimeToLiveStatusEnabling)
		return nil
	})
	return enabled
}
