package sqlite

import (
	"encoding/json"
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/queue"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

const (
	setQueue = `UPDATE locks SET waiting = ?3 WHERE project = ?1 AND ref = ?2`

	reserve = `
		UPDATE locks SET owner = ?3, heartbeat = ?4, stale_after = ?5, nonce = ?6, waiting = ?7
		WHERE project = ?1 AND ref = ?2`

	// Most locks have no waiters, so their rows are deleted without being read.
	deleteUnqueued = deleteLocks + ` AND waiting IS NULL`
)

// queueOf parses the column waiting.
func queueOf(text string) queue.Queue {
	var texts []string
	if text == "" || json.Unmarshal([]byte(text), &texts) != nil {
		return nil
	}
	return queue.Read(texts)
}

// waiting returns q as the column waiting stores it.
func waiting(q queue.Queue) any {
	if len(q) == 0 {
		return nil
	}
	return asJSON(q.Texts())
}

// setQueues writes the queues of after to the rows of refs, which were just taken and have no
// queues.
func (t *tx) setQueues(project string, refs []string, after []queue.RowUpdate) error {
	for i, a := range after {
		if len(a.Queue) == 0 {
			continue
		}
		if _, err := t.exec(setQueue, project, refs[i], waiting(a.Queue)); err != nil {
			return err
		}
	}
	return nil
}

// apply makes the updates after of the rows of refs.
func (t *tx) apply(project string, refs []string, after []queue.RowUpdate) error {
	var ended []string
	for i, a := range after {
		var err error
		switch a.Action {
		case queue.SetQueue:
			_, err = t.exec(setQueue, project, refs[i], waiting(a.Queue))
		case queue.Reserve:
			_, err = t.exec(reserve, project, refs[i], a.Lock.Owner, a.Lock.Heartbeat.UnixMicro(), microsOf(a.Lock.StaleAfter),
				orNull(a.Nonce), waiting(a.Queue))
		case queue.Delete:
			ended = append(ended, refs[i])
		}
		if err != nil {
			return err
		}
	}
	if len(ended) == 0 {
		return nil
	}
	_, err := t.exec(deleteLocks, project, asJSON(ended))
	return err
}

// end ends the locks on refs, all of which are in the table. The rows go to next or, without next,
// to the first waiter.
func (t *tx) end(project string, refs []string, next driver.Waiter) error {
	n, err := t.exec(deleteUnqueued, project, asJSON(refs))
	if err != nil || int(n) == len(refs) {
		return err
	}
	return t.decideRows(project, refs, func(r rules.Row) queue.RowUpdate {
		return queue.End(*r.Lock, r.Queue, next, timeOf(t.now))
	})
}

// decideRows makes the update that decide returns for each lock on refs.
func (t *tx) decideRows(project string, refs []string, decide func(rules.Row) queue.RowUpdate) error {
	rows, err := t.rows(project, refs)
	if err != nil {
		return err
	}
	after := make([]queue.RowUpdate, len(refs))
	for i, r := range rows {
		if r.Lock != nil {
			after[i] = decide(r)
		}
	}
	return t.apply(project, refs, after)
}

// unchanged reports whether all rows stay as they are.
func unchanged(after []queue.RowUpdate) bool {
	return !slices.ContainsFunc(after, func(a queue.RowUpdate) bool { return a.Action != queue.Keep })
}
