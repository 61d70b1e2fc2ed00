package issuers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// maxConfig is the size of a file that can hold the configuration.
const maxConfig = 1 << 20

// A Config says which JWTs of an issuer are accepted, and which subjects they name.
type Config struct {
	// Name is the first part of the issuer's subjects, NAME:VALUE.
	Name string `json:"name"`
	// URL is the claim "iss" of the issuer's JWTs. The issuer publishes its keys below it.
	URL string `json:"url"`
	// Audience has to be among the audiences of a JWT, the claim "aud".
	Audience string `json:"audience"`
	// Subject is the claim whose value is the second part of the subject. "" is for "sub".
	Subject string `json:"subject"`
	// Claims are values that other claims of a JWT must have.
	Claims map[string]string `json:"claims"`
	// CA is a file with the certificates of the authorities that sign the issuer's, in PEM form. "" is
	// for those that the system trusts.
	CA string `json:"ca"`
}

// Read reads the configuration of issuers. The error names the file, and wraps refdb.ErrInvalid if its
// content is at fault.
func Read(path string) ([]Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("the issuers of JWTs: %w", err)
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err != nil {
		return nil, fmt.Errorf("the issuers of JWTs: %w", err)
	}
	configs, err := parse(content)
	if err != nil {
		return nil, fmt.Errorf("%w issuers of JWTs in %s: %w", refdb.ErrInvalid, path, err)
	}
	return configs, nil
}

func parse(content []byte) ([]Config, error) {
	if len(content) > maxConfig {
		return nil, fmt.Errorf("over %d bytes", maxConfig)
	}
	var file struct {
		Issuers []Config `json:"issuers"`
	}
	d := json.NewDecoder(bytes.NewReader(content))
	d.DisallowUnknownFields() // a misspelt "claims" would accept more than it should
	if err := d.Decode(&file); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more after the object")
	}
	if len(file.Issuers) == 0 {
		return nil, errors.New("it has no issuers")
	}
	names, urls := map[string]bool{}, map[string]bool{}
	for i := range file.Issuers {
		c := &file.Issuers[i]
		switch err := c.check(); {
		case err != nil:
			return nil, fmt.Errorf("issuer %q: %w", c.Name, err)
		case names[c.Name]:
			return nil, fmt.Errorf("issuer %q: there are two of that name", c.Name)
		case urls[c.URL]:
			return nil, fmt.Errorf("issuer %q: there are two with the url %s", c.Name, c.URL)
		}
		names[c.Name], urls[c.URL] = true, true
		if c.Subject == "" {
			c.Subject = "sub"
		}
	}
	return file.Issuers, nil
}

func (c Config) check() error {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789-"
	u, err := url.Parse(c.URL)
	switch {
	case c.Name == "" || len(c.Name) > 32 || strings.Trim(c.Name, letters) != "":
		return errors.New("its name must be 1 to 32 lower-case letters, digits and hyphens")
	case err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return errors.New("its url must be https://HOST/PATH, as in the claim iss of its JWTs")
	case c.Audience == "":
		return errors.New("it has no audience: without one, JWTs that were issued for other services would be accepted")
	case c.CA != "" && !filepath.IsAbs(c.CA):
		return errors.New("ca must be the absolute path of a file")
	}
	for claim, value := range c.Claims {
		if claim == "" || value == "" {
			return errors.New("claims must have names and values")
		}
	}
	return nil
}
