package packs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// A writer stores one pack in parts.
type writer struct {
	db     *refdb.DB
	limits Limits
	pack   driver.Pack
	sum    hash.Hash
	parts  int

	certify func(context.Context) error // unless nil, called before the first part is stored

	carried *driver.PackPart // the only part, if the preparation is to carry it
}

// copy stores the bytes of head and then those of in. It reads one part ahead, because the last
// part completes the pack.
func (w *writer) copy(ctx context.Context, head []byte, in io.Reader) error {
	w.sum = sha256.New()
	in = io.MultiReader(bytes.NewReader(head), in)
	var next []byte
	for {
		part := make([]byte, driver.MaxPackPart)
		n, err := io.ReadFull(in, part)
		last := err == io.EOF || err == io.ErrUnexpectedEOF
		if err != nil && !last {
			return err
		}
		if next != nil {
			if err := w.storePart(ctx, next, last && n == 0); err != nil {
				return err
			}
		}
		if n == 0 {
			return nil
		}
		if next = part[:n]; last {
			return w.storePart(ctx, next, true)
		}
	}
}

func (w *writer) storePart(ctx context.Context, data []byte, last bool) error {
	w.pack.Size += int64(len(data))
	if w.limits.Bytes > 0 && w.pack.Size > w.limits.Bytes {
		return fmt.Errorf("%w: more than %d MiB", ErrTooLarge, w.limits.Bytes>>20)
	}
	w.sum.Write(data)
	p := driver.PackPart{Pack: w.pack, Number: w.parts, Data: data, Last: last}
	if last {
		p.Pack.Sum = hex.EncodeToString(w.sum.Sum(nil))
	} else {
		p.Pack.Size = 0
	}
	if last && w.parts == 0 && len(data) <= w.limits.Carried {
		p.Data = bytes.Clone(data) // a copy without the unused capacity of the buffer
		w.carried = &p
		return nil
	}
	if w.parts == 0 && w.certify != nil {
		if err := w.certify(ctx); err != nil {
			return err
		}
	}
	if err := w.limits.ask(ctx, func(ctx context.Context) error { return w.db.Packs().Store(ctx, p) }); err != nil {
		return fmt.Errorf("%w: %w", ErrDatabase, err)
	}
	if w.parts++; w.limits.Stored != nil {
		return w.limits.Stored(w.pack.Size)
	}
	return nil
}
