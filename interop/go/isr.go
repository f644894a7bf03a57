// Shares pages with FaceTheory through DynamoDB and S3, with the AWS SDK alone. The commands, results and environment are those
// of ../python/isr.py; the README describes them.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

const (
	leaseSeconds      = 30
	revalidateSeconds = 600
	retentionSeconds  = 30 * 86_400
	leaseTTLBuffer    = 3_600
	requestTTLSeconds = 86_400
	renderTimeout     = 20 * time.Second
	waitTime          = 100 * time.Second
	pollInterval      = 100 * time.Millisecond
	maxAttempts       = 8
)

var (
	table    = aws.String(os.Getenv("FACETHEORY_CACHE_TABLE_NAME"))
	bucket   = aws.String(os.Getenv("FACETHEORY_ISR_BUCKET"))
	prefix   = strings.Trim(setting("FACETHEORY_ISR_PREFIX", "isr"), "/") + "/"
	pkPrefix = setting("FACETHEORY_KEY_PREFIX", "CACHE#")
	hashed   = setting("FACETHEORY_KEYS", "raw") == "hashed"
	relative = setting("FACETHEORY_POINTERS", "absolute") == "relative"

	db *dynamodb.Client
	s  *s3.Client

	plainKey = regexp.MustCompile(`^[A-Za-z0-9_.:-]{0,128}$`)

	errRefused = errors.New("a condition of a write did not hold")
)

// item is a row in the JSON of DynamoDB.
type item map[string]types.AttributeValue

type command struct {
	ID             int    `json:"id"`
	Op             string `json:"op"`
	Key            string `json:"key"`
	Render         string `json:"render"`
	Recipe         string `json:"recipe"`
	IdempotencyKey string `json:"idempotency_key"`
	Deployment     string `json:"deployment"`
}

type result struct {
	ID    int    `json:"id"`
	State string `json:"state,omitempty"`
	Body  string `json:"body,omitempty"`
	S3Key string `json:"s3_key,omitempty"`
	Error string `json:"error,omitempty"`
}

// request identifies an idempotent request.
type request struct{ key, hash string }

func setting(name, fallback string) string {
	if value, ok := os.LookupEnv(name); ok {
		return value
	}
	return fallback
}

func text(value string) types.AttributeValue { return &types.AttributeValueMemberS{Value: value} }

func number(value int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(value, 10)}
}

func (row item) text(name string) string {
	value, _ := row[name].(*types.AttributeValueMemberS)
	if value == nil {
		return ""
	}
	return value.Value
}

func (row item) number(name string, fallback int64) int64 {
	if value, ok := row[name].(*types.AttributeValueMemberN); ok {
		if parsed, err := strconv.ParseInt(value.Value, 10, 64); err == nil {
			return parsed
		}
	}
	return fallback
}

func hash(data []byte) string {
	digest := sha256.Sum256(data)
	return hex.EncodeToString(digest[:])
}

// partition returns the partition of the rows of a page. A hash does not show the tenant, so it is in front.
func partition(key string) string {
	if !hashed {
		return pkPrefix + key
	}
	owner := ""
	if tenant, _, _ := strings.Cut(key, "::"); tenant != "default" {
		owner = "TENANT#" + tenant + "#"
	}
	return owner + pkPrefix + hash([]byte(key))
}

// requestSK returns the sort key of a request. A key that is not plain is hashed, so that it cannot name another row.
func requestSK(key string) string {
	if plainKey.MatchString(key) {
		return "REQ#" + key
	}
	return "REQ#sha256=" + hash([]byte(key))
}

func now() int64 { return time.Now().Unix() }

func randomID() string { return rand.Text() }

func get(ctx context.Context, pk, sk string) (item, error) {
	key := item{"pk": text(pk), "sk": text(sk)}
	out, err := db.GetItem(ctx, &dynamodb.GetItemInput{TableName: table, Key: key, ConsistentRead: aws.Bool(true)})
	if err != nil {
		return nil, err
	}
	return out.Item, nil
}

// current returns the current render: META, or the version that it points at. It is nil if there is none.
func current(ctx context.Context, pk string) (item, error) {
	meta, err := get(ctx, pk, "META")
	if err != nil {
		return nil, err
	}
	found := item{}
	for name, value := range meta {
		found[name] = value
	}
	if sk := meta.text("current_sk"); strings.HasPrefix(sk, "VER#") {
		version, err := get(ctx, pk, sk)
		if err != nil {
			return nil, err
		}
		for name, value := range version {
			found[name] = value
		}
	}
	// An invalidation of this render sets the interval of META to 0.
	isCopy := meta.text("s3_key") == "" || meta.text("s3_key") == found.text("s3_key")
	if interval, ok := meta["revalidate_seconds"]; ok && isCopy {
		found["revalidate_seconds"] = interval
	}
	if found.text("s3_key") == "" {
		return nil, nil
	}
	return found, nil
}

func isFresh(page item) bool {
	return page != nil && now() < page.number("generated_at", 0)+page.number("revalidate_seconds", revalidateSeconds)
}

func lock(pk, token string) *types.Put {
	expires := now() + leaseSeconds
	return &types.Put{
		TableName: table,
		Item: item{"pk": text(pk), "sk": text("LOCK"), "lease_token": text(token), "lease_expires_at": number(expires),
			"ttl": number(expires + leaseTTLBuffer)},
		ConditionExpression:       aws.String("attribute_not_exists(pk) OR lease_expires_at <= :now"),
		ExpressionAttributeValues: item{":now": number(now())},
	}
}

// write sends a conditional write. A transaction of others on the same rows is a conflict, and the write is sent again.
func write(send func() error) error {
	for attempt := 0; ; attempt++ {
		err := send()
		var failed *types.ConditionalCheckFailedException
		var canceled *types.TransactionCanceledException
		var conflict *types.TransactionConflictException
		var inProgress *types.TransactionInProgressException
		isConflict := errors.As(err, &conflict) || errors.As(err, &inProgress)
		switch {
		case err == nil:
			return nil
		case errors.As(err, &failed):
			return errRefused
		case errors.As(err, &canceled):
			for _, reason := range canceled.CancellationReasons {
				switch aws.ToString(reason.Code) {
				case "ConditionalCheckFailed":
					return errRefused
				case "TransactionConflict":
					isConflict = true
				}
			}
		}
		if !isConflict || attempt+1 == maxAttempts {
			return err
		}
		time.Sleep(20 * time.Millisecond << attempt)
	}
}

// acquire takes the lease of a page. It returns errRefused if another service holds it.
func acquire(ctx context.Context, pk string) (string, error) {
	token := randomID()
	put := lock(pk, token)
	return token, write(func() error {
		_, err := db.PutItem(ctx, &dynamodb.PutItemInput{TableName: put.TableName, Item: put.Item,
			ConditionExpression: put.ConditionExpression, ExpressionAttributeValues: put.ExpressionAttributeValues})
		return err
	})
}

// release deletes the lease, unless the page has been published or another service has taken the lease over.
func release(ctx context.Context, pk, token string) {
	err := write(func() error {
		_, err := db.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: table,
			Key:                       item{"pk": text(pk), "sk": text("LOCK")},
			ConditionExpression:       aws.String("lease_token = :token"),
			ExpressionAttributeValues: item{":token": text(token)}})
		return err
	})
	if err != nil && !errors.Is(err, errRefused) {
		log.Printf("the lease of %s was not released and expires by itself: %v", pk, err)
	}
}

// objectKey returns the key in the bucket: pointers are written in one form and read in all.
func objectKey(pointer string) string {
	if rest, ok := strings.CutPrefix(pointer, "s3://"); ok {
		_, key, _ := strings.Cut(rest, "/")
		return key
	}
	if strings.HasPrefix(pointer, prefix) {
		return pointer
	}
	return prefix + pointer
}

func readBody(ctx context.Context, page item) (string, error) {
	out, err := s.GetObject(ctx, &s3.GetObjectInput{Bucket: bucket, Key: aws.String(objectKey(page.text("s3_key")))})
	if err != nil {
		return "", err
	}
	defer out.Body.Close()
	body, err := io.ReadAll(out.Body)
	return string(body), err
}

// storeBody stores a body under a new key, and returns the pointer to it.
func storeBody(ctx context.Context, key string, body []byte, contentType string, started time.Time) (string, error) {
	pointer := fmt.Sprintf("%s/%d-%s.html", hash([]byte(key))[:24], started.UnixMilli(), randomID())
	_, err := s.PutObject(ctx, &s3.PutObjectInput{Bucket: bucket, Key: aws.String(prefix + pointer),
		Body: bytes.NewReader(body), ContentType: aws.String(contentType),
		Metadata: map[string]string{"facetheory-status": "200", "facetheory-content-type": contentType}})
	if relative {
		return pointer, err
	}
	return prefix + pointer, err
}

// versionID returns a ULID: ids sort by age.
func versionID(started time.Time) string {
	const digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	random, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 80))
	if err != nil {
		panic(err) // the system has no random numbers
	}
	id := new(big.Int).Add(new(big.Int).Lsh(big.NewInt(started.UnixMilli()), 80), random)
	text := make([]byte, 26)
	for place := range text {
		digit := new(big.Int).Rsh(id, uint(5*(25-place)))
		text[place] = digits[digit.And(digit, big.NewInt(31)).Int64()]
	}
	return string(text)
}

// publish publishes a render and deletes the lease, in one transaction that fails if the lease was lost.
func publish(ctx context.Context, pk, token, recipe, pointer, etag string, started time.Time, req *request) error {
	content := item{"s3_key": text(pointer), "generated_at": number(started.Unix()),
		"revalidate_seconds": number(revalidateSeconds), "etag": text(etag), "ttl": number(started.Unix() + retentionSeconds)}
	row := func(sk string) item {
		row := item{"pk": text(pk), "sk": text(sk)}
		for name, value := range content {
			row[name] = value
		}
		return row
	}
	var writes []types.TransactWriteItem
	if recipe == "A" {
		writes = append(writes, types.TransactWriteItem{Put: &types.Put{TableName: table, Item: row("META")}})
	} else {
		sk := "VER#" + versionID(started)
		names, values := map[string]string{"#current_sk": "current_sk"}, item{":current_sk": text(sk), ":one": number(1)}
		set := []string{"#current_sk = :current_sk"}
		// META repeats the version, for readers that know only recipe A.
		for name, value := range content {
			names["#"+name], values[":"+name] = name, value
			set = append(set, fmt.Sprintf("#%s = :%s", name, name))
		}
		writes = append(writes,
			types.TransactWriteItem{Put: &types.Put{TableName: table, Item: row(sk),
				ConditionExpression: aws.String("attribute_not_exists(pk)")}},
			types.TransactWriteItem{Update: &types.Update{TableName: table, Key: item{"pk": text(pk), "sk": text("META")},
				UpdateExpression:          aws.String("SET " + strings.Join(set, ", ") + " ADD version :one"),
				ExpressionAttributeNames:  names,
				ExpressionAttributeValues: values}})
	}
	if req != nil {
		writes = append(writes, types.TransactWriteItem{Update: &types.Update{TableName: table,
			Key:                      item{"pk": text(pk), "sk": text(requestSK(req.key))},
			UpdateExpression:         aws.String("SET #status = :completed, result_s3_key = :pointer"),
			ConditionExpression:      aws.String("#status = :started AND request_hash = :hash"),
			ExpressionAttributeNames: map[string]string{"#status": "status"},
			ExpressionAttributeValues: item{":completed": text("COMPLETED"), ":started": text("STARTED"),
				":pointer": text(pointer), ":hash": text(req.hash)}}})
	}
	writes = append(writes, types.TransactWriteItem{Delete: &types.Delete{TableName: table,
		Key:                       item{"pk": text(pk), "sk": text("LOCK")},
		ConditionExpression:       aws.String("lease_token = :token AND lease_expires_at > :now"),
		ExpressionAttributeValues: item{":token": text(token), ":now": number(now())}}})
	return transact(ctx, writes)
}

func transact(ctx context.Context, writes []types.TransactWriteItem) error {
	input := &dynamodb.TransactWriteItemsInput{TransactItems: writes, ClientRequestToken: aws.String(randomID())}
	return write(func() error {
		_, err := db.TransactWriteItems(ctx, input)
		return err
	})
}

func render(ctx context.Context, c command, pk, token, state string, req *request) (result, error) {
	started := time.Now()
	client := http.Client{Timeout: renderTimeout}
	response, err := client.Get(c.Render)
	if err != nil {
		return result{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return result{}, fmt.Errorf("the origin responded %s: %w", response.Status, err)
	}
	pointer, err := storeBody(ctx, c.Key, body, response.Header.Get("Content-Type"), started)
	if err != nil {
		return result{}, err
	}
	etag := `"` + hash(body)[:32] + `"`
	err = publish(ctx, pk, token, c.Recipe, pointer, etag, started, req)
	return result{State: state, Body: string(body), S3Key: pointer}, err
}

// visit serves a page, and renders it if it is not fresh and no other service does.
func visit(ctx context.Context, c command) (result, error) {
	pk, state := partition(c.Key), "hit"
	for deadline := time.Now().Add(waitTime); time.Now().Before(deadline); {
		page, err := current(ctx, pk)
		if err != nil {
			return result{}, err
		}
		if isFresh(page) {
			body, err := readBody(ctx, page)
			return result{State: state, Body: body, S3Key: page.text("s3_key")}, err
		}
		token, err := acquire(ctx, pk)
		if errors.Is(err, errRefused) {
			state = "wait-hit"
			time.Sleep(pollInterval)
			continue
		} else if err != nil {
			return result{}, err
		}
		// It may have been published just before the lease was taken.
		page, err = current(ctx, pk)
		if err == nil && isFresh(page) {
			release(ctx, pk, token)
			continue
		}
		var rendered result
		if err == nil {
			rendered, err = render(ctx, c, pk, token, "miss", nil)
		}
		release(ctx, pk, token)
		if !errors.Is(err, errRefused) {
			return rendered, err
		}
	}
	return result{}, fmt.Errorf("%s was not rendered within %s", c.Key, waitTime)
}

// requestHash identifies the content of a request, alike in all languages.
func requestHash(key, deployment, policyVersion string) string {
	escape := strings.NewReplacer("%", "%25", "|", "%7C").Replace
	return hash([]byte(key + "|" + escape(deployment) + "|" + escape(policyVersion)))
}

// once renders a page once for an idempotency key, whatever its freshness.
func once(ctx context.Context, c command) (result, error) {
	pk, token := partition(c.Key), randomID()
	req := request{key: c.IdempotencyKey, hash: requestHash(c.Key, c.Deployment, "")}
	if req.key == "" {
		req.key = req.hash
	}
	sk := requestSK(req.key)
	row := item{"pk": text(pk), "sk": text(sk), "request_hash": text(req.hash), "status": text("STARTED"),
		"ttl": number(now() + requestTTLSeconds)}
	begin := &types.Put{TableName: table, Item: row, ConditionExpression: aws.String("attribute_not_exists(pk)")}
	err := transact(ctx, []types.TransactWriteItem{{Put: begin}, {Put: lock(pk, token)}})
	if errors.Is(err, errRefused) {
		found, err := get(ctx, pk, sk)
		switch {
		case err != nil:
			return result{}, err
		case found == nil:
			return result{State: "held"}, nil
		case found.text("request_hash") != req.hash:
			return result{State: "mismatch"}, nil
		}
		return result{State: strings.ToLower(found.text("status")), S3Key: found.text("result_s3_key")}, nil
	}
	if err != nil {
		return result{}, err
	}
	defer release(ctx, pk, token)
	return render(ctx, c, pk, token, "done", &req)
}

func main() {
	ctx := context.Background()
	// An operation that DynamoDB may have applied is not repeated blindly: a second conditional put would be refused by the
	// first.
	settings, err := config.LoadDefaultConfig(ctx, config.WithRetryMaxAttempts(1))
	if err != nil {
		log.Fatal(err)
	}
	db = dynamodb.NewFromConfig(settings)
	s = s3.NewFromConfig(settings, func(options *s3.Options) { options.UsePathStyle = true })

	var running sync.WaitGroup
	var printing sync.Mutex
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var c command
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			log.Fatal(err)
		}
		running.Go(func() {
			execute := visit
			if c.Op == "request" {
				execute = once
			}
			found, err := execute(ctx, c)
			found.ID = c.ID
			if err != nil {
				found = result{ID: c.ID, Error: err.Error()}
			}
			line, _ := json.Marshal(found)
			printing.Lock()
			defer printing.Unlock()
			fmt.Println(string(line))
		})
	}
	running.Wait()
}
