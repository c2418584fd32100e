package pgstore

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/groupcommit"
)

// answer is what one request of a batch gets.
type answer = groupcommit.Answer[retrysafe.Record]

// maxFlights is how many batches of one kind overlap at most, where their commits take
// longer than what they commit. Each has a connection of its own.
const maxFlights = 8

// batchMemory is what one batch after the other uses. Batches that overlap have one each.
type batchMemory struct {
	flight   *groupcommit.Flight
	all, ids arrays
	order    []int
	answers  []answer
}

// blank returns n empty answers.
func (m *batchMemory) blank(n int) []answer {
	m.answers = slices.Grow(m.answers[:0], n)[:n]
	clear(m.answers)
	return m.answers
}

// sorted returns the numbers below n in the order that compare gives them.
func (m *batchMemory) sorted(n int, compare func(a, b int) int) []int {
	m.order = m.order[:0]
	for i := range n {
		m.order = append(m.order, i)
	}
	slices.SortStableFunc(m.order, compare)
	return m.order
}

// split calls try with all of some. If the server refuses that, it calls try with each
// alone, so that one request that the server cannot take does not fail the others. A try
// is several exchanges, and one that is refused was not applied: try has taken its answers
// back. What the exchanges before it have answered was applied, and stays.
func split(some []int, answers []answer, try func([]int) error) {
	err := try(some)
	if err == nil {
		return
	}
	left := unanswered(some, answers)
	var refused *pgconn.PgError
	if len(some) == 1 || isLocked(err) || !errors.As(err, &refused) || refused.SeverityUnlocalized != "ERROR" {
		for _, i := range left {
			answers[i].Err = err
		}
		return
	}
	for n, i := range left {
		if err := try(left[n : n+1]); err != nil {
			answers[i].Err = err
		}
	}
}

// lockPatience is for how long a step of a batch is repeated that no row of another
// transaction holds up. Engines give a step two seconds: a reservation whose caller has given
// up would be stored for no execution.
const lockPatience = 500 * time.Millisecond

// lastExchange is the time that the last exchange of a lone caller needs. One that begins with
// less could be cut off, and its outcome be in doubt.
const lastExchange = 100 * time.Millisecond

// persist repeats a step that leaves out every row and key which another transaction has
// locked. If it has waited for too long all the same, then for the table, which a migration
// has locked, or for a new page on a slow disk.
func (p *connPool) persist(ctx context.Context, step func() error) error {
	err := step()
	if !isLocked(err) {
		return err
	}
	limit := time.Now().Add(p.s.lockPatience)
	if deadline, ok := ctx.Deadline(); ok && deadline.Add(-lastExchange).Before(limit) {
		limit = deadline.Add(-lastExchange)
	}
	for isLocked(err) && time.Now().Before(limit) {
		err = step()
	}
	return err
}

// unanswered returns those of some that have no answer yet.
func unanswered(some []int, answers []answer) (left []int) {
	for _, i := range some {
		if answers[i].Err == nil && answers[i].Value.Revision == 0 {
			left = append(left, i)
		}
	}
	return left
}

// reset takes back the answers of an exchange that failed.
func reset(some []int, answers []answer) {
	for _, i := range some {
		answers[i] = answer{}
	}
}

// answerBusy is for requests whose key an open transaction holds.
func answerBusy(some []int, answers []answer) {
	for _, i := range some {
		answers[i].Err = retrysafe.ErrBusy
	}
}
