package postgres_test

import (
	"encoding/pem"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// fakeServer starts a server that refuses TLS, answers each client's startup message with message,
// unless that is nil, and closes the connection. told stops the server, and returns the bytes that
// clients sent after the message.
func fakeServer(t *testing.T, message pgproto3.BackendMessage) (address string, told func() []byte) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var answers []byte
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			b := pgproto3.NewBackend(c, c)
			m, err := b.ReceiveStartupMessage()
			if _, ok := m.(*pgproto3.SSLRequest); ok {
				c.Write([]byte("N"))
				_, err = b.ReceiveStartupMessage()
			}
			if err == nil && message != nil {
				b.Send(message)
				if b.Flush() == nil {
					answer := make([]byte, 1024)
					n, _ := c.Read(answer)
					answers = append(answers, answer[:n]...)
				}
			}
			c.Close()
		}
	}()
	stop := func() {
		ln.Close()
		<-done
	}
	t.Cleanup(stop)
	return ln.Addr().String(), func() []byte {
		stop()
		return answers
	}
}

// A server that asks for the password in plaintext may be an attacker. The refusal names the URL to
// use if it is not.
func TestThePasswordIsNotSentToAnInterceptor(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, parameters string
		asks             pgproto3.BackendMessage
		says             string
	}{
		{"in plaintext", "sslmode=disable", &pgproto3.AuthenticationCleartextPassword{}, "db?sslmode=disable&require_auth=password"},
		{"as MD5", "sslmode=disable", &pgproto3.AuthenticationMD5Password{Salt: [4]byte{1, 2, 3, 4}}, "db?sslmode=disable&require_auth=password"},
		{"without encryption", "sslmode=verify-full", &pgproto3.AuthenticationCleartextPassword{}, "db?sslmode=disable"},
		{"in plaintext, on this machine", "", &pgproto3.AuthenticationCleartextPassword{}, "db?require_auth=password"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			at, told := fakeServer(t, row.asks)
			address := "postgres://u:" + secret + "@" + at + "/db"
			if row.parameters != "" {
				address += "?" + row.parameters
			}
			for _, err := range openers(t.Context(), address) {
				wantLine(t, err, "use postgres://u:PASSWORD@"+at+"/"+row.says)
			}
			if got := told(); len(got) > 0 {
				t.Errorf("the server received %q", got)
			}
		})
	}
}

// trusted returns the file of the CA that signed the certificate of overTLS, for 127.0.0.1.
func trusted(t *testing.T) (file string) {
	t.Helper()
	https := httptest.NewTLSServer(nil)
	defer https.Close()
	file = filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: https.Certificate().Raw})
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestTheServersCertificateIsVerified(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	address := strings.Replace(overTLS(t, db.URL()), "sslmode=require", "sslmode=verify-full", 1)
	for _, err := range openers(t.Context(), address) {
		wantLine(t, err, "sslmode=verify-full&sslrootcert=/etc/refdb/database-ca.pem")
	}
	address += "&sslrootcert=" + trusted(t)
	other := strings.Replace(address, "127.0.0.1", "localhost", 1)
	for _, err := range openers(t.Context(), other) {
		wantLine(t, err, "sslmode=verify-ca")
	}
	// The advice works.
	for _, address := range []string{address, strings.Replace(other, "verify-full", "verify-ca", 1)} {
		for _, err := range openers(t.Context(), address) {
			if err != nil {
				t.Error(err)
			}
		}
	}
}

func TestAServerWithoutPasswordAuthenticationIsRefusedWithAValidRemedy(t *testing.T) {
	t.Parallel()
	address := strings.Replace(overTLS(t, dbtest.Postgres(t).URL()), "postgres:@", "postgres:"+secret+"@", 1)
	for _, err := range openers(t.Context(), address+"&require_auth=scram-sha-256") {
		wantLine(t, err, "&require_auth=none")
	}
	for _, err := range openers(t.Context(), address+"&require_auth=none") {
		if err != nil {
			t.Error(err)
		}
	}
}

func TestTheDiagnosisNamesTheEncryption(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	over := overTLS(t, db.URL())
	for _, row := range []struct {
		name, address string
		note          bool
		says          string
	}{
		{"a socket", db.URL(), false, "stays on this machine"},
		{"unverified", over, true, "TLS 1.3, but the name in the server's certificate is not verified"},
		{"verified", strings.Replace(over, "sslmode=require", "sslmode=verify-full", 1) + "&sslrootcert=" + trusted(t), false, "TLS 1.3, and the server's certificate is verified"},
	} {
		t.Run(row.name, func(t *testing.T) {
			found, err := open(t, row.address).Diagnose(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var of []driver.Diagnosis
			for _, d := range found {
				if d.Name == "encryption" {
					of = append(of, d)
				}
			}
			if len(of) != 1 || !of[0].OK || of[0].Note != row.note || !strings.Contains(of[0].Detail, row.says) {
				t.Errorf("got %+v", of)
			}
		})
	}
}
