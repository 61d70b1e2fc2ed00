package sqlite

import "context"

// read runs do on a connection that only reads. A statement sees all that any
// process committed before it began: a commit moves the index in shared memory
// on before it returns, and a read starts by looking there. So one statement is
// linearizable, and waits for no writer.
func (d *Driver) read(ctx context.Context, doing string, do func(*conn) error) error {
	c, err := d.take(ctx)
	if err != nil {
		return explain(d.path, doing, err)
	}
	defer func() { d.readers <- c }()
	err = do(c)
	// Afterwards: no log was read that others had replaced before.
	if _, gone := d.files.standing(); gone != nil {
		return explain(d.path, doing, gone)
	}
	if err == nil {
		return nil
	}
	if code(err) != 0 {
		// Whatever state the error left it in; a new one takes a millisecond.
		_ = c.close()
	}
	return explain(d.path, doing, ended(ctx, err))
}
