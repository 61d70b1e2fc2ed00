package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"
)

// writtenBlind is how many bytes are sent before anything is read: less than a
// connection takes up while neither side reads.
const writtenBlind = 16 << 10

// An exchange is a trip on its way: its statements are sent at once with one
// Sync, and answered one after the other.
//
// It does what a batch of pgx does, for statements that are prepared. A batch sets
// a timer before it writes, for both sides might wait for each other to read.
// For the little that a trip sends that can't be; and as setting a timer wakes a
// thread up, it costs a quarter of all that the client does for a lone trip.
type exchange struct {
	conn    *pgx.Conn
	on      *connection
	asked   []*pgconn.StatementDescription // not answered yet
	watched bool                           // ctx is
	writing sync.WaitGroup
	ended   bool  // by the answer to the Sync
	err     error // the first
}

// exchange sends the trip's statements. An error says that none of them was
// sent to be executed.
func (c *connection) exchange(ctx context.Context, conn *pgx.Conn, t trip) (*exchange, error) {
	e := &exchange{conn: conn, on: c}
	if err := c.prepare(ctx, conn, t); err != nil {
		return nil, err
	}
	message, err := e.encode(t)
	if err != nil {
		return nil, err
	}
	if ctx.Done() != nil {
		e.watched = true
		c.watcher.Watch(ctx)
	}
	if len(message) > writtenBlind {
		e.writing.Go(func() {
			if _, err := conn.PgConn().Conn().Write(message); err != nil {
				conn.PgConn().Conn().Close() // nothing will come back
			}
		})
	} else if _, err := conn.PgConn().Conn().Write(message); err != nil {
		e.err = sent{err}
		conn.Close(context.Background())
	}
	return e, nil
}

// encode returns the messages of the trip, in a buffer that the next trip reuses.
func (e *exchange) encode(t trip) (message []byte, err error) {
	message = e.on.buffer[:0]
	values := &e.on.builder
	for _, s := range t.statements {
		prepared := e.on.statements[s.sql]
		if err := values.Build(e.conn.TypeMap(), prepared, s.args); err != nil {
			return nil, err
		}
		bind := pgproto3.Bind{
			PreparedStatement:    prepared.Name,
			ParameterFormatCodes: values.ParamFormats,
			Parameters:           values.ParamValues,
			ResultFormatCodes:    values.ResultFormats,
		}
		if message, err = bind.Encode(message); err != nil {
			return nil, err
		}
		if message, err = (&pgproto3.Execute{}).Encode(message); err != nil {
			return nil, err
		}
		e.asked = append(e.asked, prepared)
	}
	if message, err = (&pgproto3.Sync{}).Encode(message); err != nil {
		return nil, err
	}
	if len(message) <= writtenBlind {
		e.on.buffer = message
	}
	return message, nil
}

var errUnanswered = errors.New("the server did not answer a statement")

// Query returns the answer to the next statement. The one before has to be closed.
func (e *exchange) Query() (pgx.Rows, error) {
	a := &answer{exchange: e, statement: e.asked[0], closed: e.err != nil}
	e.asked = e.asked[1:]
	return a, e.err
}

// Close waits for the answer to the Sync, and returns the first error of the exchange. Where no
// such answer came, the connection can't be used again.
func (e *exchange) Close() error {
	for !e.ended && !e.conn.IsClosed() {
		if _, err := e.receive(); err != nil && sqlState(err) == "" {
			e.conn.Close(context.Background()) // it isn't the server that complains
		}
	}
	if e.watched {
		e.watched = false
		e.on.watcher.Unwatch()
	}
	e.writing.Wait()
	return e.err
}

// receive returns the next message, or what the server has to complain about.
func (e *exchange) receive() (pgproto3.BackendMessage, error) {
	message, err := e.conn.PgConn().ReceiveMessage(context.Background())
	switch m := message.(type) {
	case *pgproto3.ErrorResponse:
		err = pgconn.ErrorResponseToPgError(m)
		if m.Code == featureNotSupported || m.Code == noSuchStatement {
			clear(e.on.statements) // their tables were altered, or they are gone
		}
	case *pgproto3.ReadyForQuery:
		e.ended = true
	}
	if err != nil {
		err = sent{err}
		if e.err == nil {
			e.err = err
		}
	}
	return message, err
}

// sent is an error that came after statements had been sent. pgx, which didn't
// send them, may believe that nothing was.
type sent struct{ error }

func (e sent) Unwrap() error   { return e.error }
func (sent) SafeToRetry() bool { return false }

// An answer is what a statement returns.
type answer struct {
	exchange  *exchange
	statement *pgconn.StatementDescription
	values    [][]byte // of the row, until the next
	tag       pgconn.CommandTag
	closed    bool
}

var _ pgx.Rows = (*answer)(nil)

// Next goes to the next row, or reports that there is none.
func (a *answer) Next() bool {
	for !a.closed {
		message, err := a.exchange.receive()
		if err != nil {
			a.closed = true
			break
		}
		switch m := message.(type) {
		case *pgproto3.DataRow:
			a.values = m.Values
			return true
		case *pgproto3.ReadyForQuery: // never
			a.exchange.err, a.closed = sent{errUnanswered}, true
		case *pgproto3.CommandComplete:
			a.tag, a.closed = pgconn.NewCommandTag(string(m.CommandTag)), true
		}
	}
	a.values = nil
	return false
}

// Close passes over the rows that are left.
func (a *answer) Close() {
	for a.Next() {
	}
}

func (a *answer) Scan(into ...any) error {
	if len(into) != len(a.values) {
		return fmt.Errorf("%d columns are read into %d variables", len(a.values), len(into))
	}
	types := a.TypeMap()
	for i, v := range into {
		if v == nil {
			continue
		}
		oid := a.statement.Fields[i].DataTypeOID
		if err := types.Scan(oid, types.FormatCodeForOID(oid), a.values[i], v); err != nil {
			a.Close()
			return pgx.ScanArgError{ColumnIndex: i, FieldName: a.statement.Fields[i].Name, Err: err}
		}
	}
	return nil
}

func (a *answer) Err() error                                   { return a.exchange.err }
func (a *answer) CommandTag() pgconn.CommandTag                { return a.tag }
func (a *answer) FieldDescriptions() []pgconn.FieldDescription { return a.statement.Fields }
func (a *answer) RawValues() [][]byte                          { return a.values }
func (a *answer) Values() ([]any, error)                       { return nil, errors.ErrUnsupported }
func (a *answer) TypeMap() *pgtype.Map                         { return a.exchange.conn.TypeMap() }
func (a *answer) Conn() *pgx.Conn                              { return a.exchange.conn }
