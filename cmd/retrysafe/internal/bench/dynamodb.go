package bench

import (
	"context"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
)

// dynamoDB is the store's own table. The items of the bare loop are in none of its indexes.
type dynamoDB struct {
	client *dynamodb.Client
	table  string
	end    func()
}

func newDynamoDB(ctx context.Context, at *storeurl.Address) (database, error) {
	client, transport, err := at.DynamoDBClient(ctx)
	if err != nil {
		return nil, err
	}
	return &dynamoDB{client, at.Table, transport.CloseIdleConnections}, nil
}

type item = map[string]types.AttributeValue

func dynamoKey(n int64) item {
	return item{"id": &types.AttributeValueMemberB{Value: []byte(keyOf(n))}}
}

func (d *dynamoDB) insert(ctx context.Context, n int64) error {
	c, row := newCall(n), dynamoKey(n)
	row["scope"] = &types.AttributeValueMemberS{Value: c.Scope}
	row["operation"] = &types.AttributeValueMemberS{Value: c.Operation}
	row["fingerprint"] = &types.AttributeValueMemberB{Value: c.Fingerprint.Sum[:]}
	_, err := d.client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: &d.table, Item: row, ConditionExpression: aws.String("attribute_not_exists(#id)"), ExpressionAttributeNames: map[string]string{"#id": "id"},
	})
	return err
}

func (d *dynamoDB) update(ctx context.Context, n int64) error {
	_, err := d.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: &d.table, Key: dynamoKey(n),
		UpdateExpression:         aws.String("SET #s = :s, #b = :b"),
		ConditionExpression:      aws.String("attribute_exists(#id) AND attribute_not_exists(#s)"),
		ExpressionAttributeNames: map[string]string{"#id": "id", "#s": "answered", "#b": "body"},
		ExpressionAttributeValues: item{
			":s": &types.AttributeValueMemberN{Value: strconv.Itoa(answer.Status)}, ":b": &types.AttributeValueMemberB{Value: answer.Body},
		},
	})
	return err
}

// roundTrip reads an item that is not there.
func (d *dynamoDB) roundTrip(ctx context.Context) error {
	_, err := d.client.GetItem(ctx, &dynamodb.GetItemInput{TableName: &d.table, Key: dynamoKey(0), ConsistentRead: aws.Bool(true)})
	return err
}

func (d *dynamoDB) close(context.Context) error {
	d.end()
	return nil
}
