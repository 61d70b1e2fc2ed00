package site_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/testissuer"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
	"github.com/globalrefdb/globalrefdb/service/access"
	"github.com/globalrefdb/globalrefdb/service/issuers"
	"github.com/globalrefdb/globalrefdb/service/server"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
)

// exportedByServer is what refdb-server exports that has a certificate and an issuer, and has answered a call.
func exportedByServer(t *testing.T) string {
	t.Helper()
	db, err := refdb.New(memory.New().Open(), refdb.Options{Site: "server"})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	token, _, err := access.CreateToken(t.Context(), db, "ci", time.Hour, "")
	if err == nil {
		_, _, err = access.AddRule(t.Context(), db, access.Rule{Subject: "ci", Projects: access.All, Refs: access.All, Right: access.Read})
	}
	if err != nil {
		t.Fatal(err)
	}
	logger := slog.New(slog.DiscardHandler)
	issuer := testissuer.New(t)
	trusted := issuers.New([]issuers.Config{{Name: "gitlab", URL: issuer.URL, Audience: "refdb", CA: issuer.CA}}, logger)
	s, err := server.New(server.Options{DB: db, Rules: db, Logger: logger, Limits: server.DefaultLimits, Issuers: trusted})
	if err != nil {
		t.Fatal(err)
	}
	at := server.Listen{Address: "127.0.0.1:0"}
	client := certified(t, &at)
	ctx, stop := context.WithCancel(t.Context())
	addresses, ended := make(chan net.Addr, 1), make(chan error, 1)
	go func() {
		ended <- s.Run(ctx, at, server.Stop{Limit: sitetest.Patience}, func(a net.Addr) { addresses <- a })
	}()
	var url string
	select {
	case a := <-addresses:
		url = "https://" + a.String()
	case err := <-ended:
		t.Fatal(err)
	}
	send := func(method, path, body string) (bool, string) {
		r, err := http.NewRequestWithContext(t.Context(), method, url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/json")
		response, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		return err == nil && response.StatusCode == http.StatusOK, string(text)
	}
	sitetest.Eventually(t, "the server knows the token", func() bool {
		ok, _ := send(http.MethodPost, "/refdb.v1.RefdbService/List", `{"project": "p"}`)
		return ok
	})
	ok, text := send(http.MethodGet, "/metrics", "")
	client.CloseIdleConnections()
	stop()
	if err := <-ended; err != nil || !ok {
		t.Fatal(ok, err, text)
	}
	return text
}

// certified gives a server the certificate of net/http/httptest, and returns a client that trusts it.
func certified(t *testing.T, at *server.Listen) *http.Client {
	t.Helper()
	other := httptest.NewTLSServer(nil)
	t.Cleanup(other.Close)
	pair := other.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	at.CertificateFile, at.PrivateKey = filepath.Join(dir, "certificate.pem"), filepath.Join(dir, "key.pem")
	err = errors.Join(
		os.WriteFile(at.CertificateFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}), 0o600),
		os.WriteFile(at.PrivateKey, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	return other.Client()
}
