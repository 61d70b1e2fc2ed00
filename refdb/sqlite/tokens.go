package sqlite

import (
	"errors"
	"math"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

const (
	readMark = `SELECT mark FROM token_mark`
	setMark  = `UPDATE token_mark SET mark = ?`
)

// newToken returns a token larger than those of the locks in rows and than all that were given
// out, even if the clock was set back.
func (t *tx) newToken(rows []rules.Row) (refdb.Token, error) {
	var newest refdb.Token
	for _, l := range rules.Locks(rows) {
		newest = max(newest, l.Token)
	}
	if newest == math.MaxInt64 {
		return 0, errors.New("the lock that stands there has the largest token possible: it was not written by this program, delete it")
	}
	if err := t.readMark(); err != nil {
		return 0, err
	}
	if *t.mark == math.MaxInt64 {
		return 0, errors.New("the table token_mark holds the largest token possible: restore the file from a backup")
	}
	*t.mark = max(t.now, *t.mark+1, int64(newest)+1)
	return refdb.Token(*t.mark), nil
}

// readMark reads the mark, unless the transaction has done so.
func (t *tx) readMark() error {
	if t.mark != nil {
		return nil
	}
	err := t.query(func(r row) { mark := r.int(0); t.mark = &mark }, readMark)
	if err == nil && t.mark == nil {
		err = errors.New("the table token_mark has lost its row: restore the file from a backup")
	}
	return err
}
