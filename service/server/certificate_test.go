package server

import (
	"os"
	"path/filepath"
	"testing"
)

func TestACertificateThatCanNotBeUsedLeavesTheEarlierOne(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	if _, err := newCertificate(cert, key); err == nil {
		t.Error("there are no files")
	}
	writeTestPair(t, cert, key)
	c, err := newCertificate(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	first := c.current.Load()
	if changed, err := c.reload(); changed || err != nil || c.current.Load() != first {
		t.Errorf("unchanged files: %v, %v", changed, err)
	}
	other := filepath.Join(dir, "other.pem")
	writeTestPair(t, cert, other) // so far, only the certificate is replaced
	if changed, err := c.reload(); !changed || err == nil || c.current.Load() != first {
		t.Errorf("half of a pair: %v, %v", changed, err)
	}
	if err := os.Rename(other, key); err != nil {
		t.Fatal(err)
	}
	if changed, err := c.reload(); !changed || err != nil || c.current.Load() == first {
		t.Errorf("another pair: %v, %v", changed, err)
	}
	second := c.current.Load()
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	if _, err := c.reload(); err == nil || c.current.Load() != second {
		t.Errorf("without a key: %v", err)
	}
}
