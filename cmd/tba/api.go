package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// api is the JSON API of a running server, over plain HTTP: what this program asks, curl can ask too.
type api struct {
	a       *app
	server  string // --server
	keyFile string // --key-file
	ca      string // --ca
	pool    string // --pool
	client  *http.Client
}

// answerTimeout bounds a read. A lease that waits has its own bound on top.
const answerTimeout = 10 * time.Second

// maxAnswer bounds what is read of an answer: a page has 1,000 rows.
const maxAnswer = 64 << 20

// serverFlags adds the flags of every command that asks a server.
func (a *app) serverFlags(cmd *cobra.Command) *api {
	s := &api{a: a}
	flags := cmd.Flags()
	flags.StringVar(&s.server, "server", "", "address of the HTTP port (default http://127.0.0.1:7480; environment TBA_SERVER)")
	flags.StringVar(&s.keyFile, "key-file", "", "file with the bearer key (or the key itself in the environment: TBA_KEY)")
	flags.StringVar(&s.ca, "ca", "", "PEM file with the authority that signed the server's certificate")
	flags.StringVar(&s.pool, "pool", "", "pool (default: that of the key, else default)")
	complete(cmd, "pool", s, "status", func(b []byte) []string {
		var v struct{ Pools []string }
		_ = json.Unmarshal(b, &v) // no completion is the worst that happens
		return v.Pools
	})
	return s
}

// complete asks the server for the values of a flag.
func complete(cmd *cobra.Command, flag string, s *api, path string, read func([]byte) []string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) { // the caller defines the flag
		ctx, stop := context.WithTimeout(cmd.Context(), time.Second)
		defer stop()
		var body raw
		if err := s.get(ctx, path, nil, &body); err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return read(body), cobra.ShellCompDirectiveNoFileComp
	})
}

// base is the server's URL without a slash at its end.
func (s *api) base() (string, error) {
	text := s.server
	from := "--server"
	if text == "" {
		from = "TBA_SERVER"
		if text, _ = s.a.env("TBA_SERVER"); text == "" {
			return "http://127.0.0.1:7480", nil
		}
	}
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", fail(exitUsage, "tba status --server http://127.0.0.1:7480", "%s %q is no address such as http://127.0.0.1:7480", from, text)
	}
	return strings.TrimRight(text, "/"), nil
}

// get reads /api/v1/PATH into out.
func (s *api) get(ctx context.Context, path string, query url.Values, out any) error {
	if query == nil {
		query = url.Values{}
	}
	if s.pool != "" {
		query.Set("pool", s.pool)
	}
	ctx, stop := context.WithTimeout(ctx, answerTimeout)
	defer stop()
	target := "/api/v1/" + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	return s.do(ctx, http.MethodGet, target, nil, out)
}

// call makes one call of the service.
func (s *api) call(ctx context.Context, method string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	return s.do(ctx, http.MethodPost, "/tba.v1.TokenBudgetArbiter/"+method, body, out)
}

func (s *api) do(ctx context.Context, method, path string, body []byte, out any) error {
	base, err := s.base()
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, base+path, bytes.NewReader(body))
	if err != nil {
		return fail(exitUsage, "", "--server: %w", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	key, err := s.key()
	if err != nil {
		return err
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	client, err := s.http()
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return unreachable(ctx, base, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return unreachable(ctx, base, err)
	}
	if resp.StatusCode != http.StatusOK {
		return refused(base, path, resp, text)
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fail(exitFailure, "tba version, and compare with the server's: tba status", "read the answer of %s: %w", base, err)
	}
	return nil
}

func (s *api) key() (string, error) {
	if s.keyFile == "" {
		key, _ := s.a.env("TBA_KEY")
		return strings.TrimSpace(key), nil
	}
	b, err := os.ReadFile(s.keyFile)
	if err != nil {
		return "", fail(exitUsage, "", "--key-file: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

func (s *api) http() (*http.Client, error) {
	if s.client != nil {
		return s.client, nil
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}}
	if s.ca != "" {
		pem, err := os.ReadFile(s.ca)
		if err != nil {
			return nil, fail(exitUsage, "", "--ca: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fail(exitUsage, "", "--ca: %s holds no PEM certificate", s.ca)
		}
		transport.TLSClientConfig.RootCAs = pool
	}
	s.client = &http.Client{Transport: transport}
	return s.client, nil
}

// unreachable says why nobody answered.
func unreachable(ctx context.Context, base string, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return context.Canceled
	}
	next := "tba serve, or name the server: --server URL (TBA_SERVER)"
	var dns *net.DNSError
	var unknown x509.UnknownAuthorityError
	var mismatch tls.RecordHeaderError
	switch {
	case errors.As(err, &dns):
		next = "check the name, or give an address: --server http://127.0.0.1:7480"
	case errors.As(err, &unknown):
		next = "name the authority: --ca FILE"
	case errors.As(err, &mismatch), strings.Contains(err.Error(), "malformed HTTP"):
		next = "http or https, and the HTTP port (7480), not gRPC (7481): --server URL"
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // the URL is said already
	}
	return fail(exitUnreachable, next, "no answer from %s: %w", base, err)
}

// refused turns an error answer, RFC 9457 or Connect, into an exit code.
func refused(base, path string, resp *http.Response, text []byte) error {
	var p struct {
		Detail, Reason, Message string
	}
	_ = json.Unmarshal(text, &p) // what is no JSON comes from something else than the arbiter, and is said below
	why := p.Detail
	if why == "" {
		why = p.Message
	}
	if why == "" {
		return fail(exitFailure, "is that the HTTP port of tba (7480)? --server URL", "%s%s answered %s, not as the arbiter does", base, path, resp.Status)
	}
	err := fmt.Errorf("%s: %s", base, why)
	f := &failure{code: exitFailure, err: err}
	switch resp.StatusCode {
	case http.StatusBadRequest:
		f.code = exitUsage
		if p.Reason == "unknown_pool" || strings.Contains(why, "is not open here") {
			f.code, f.next = exitNotFound, "tba status lists the pools"
		}
	case http.StatusUnauthorized:
		f.code, f.next = exitUnauthorised, "send a key of auth.keys: --key-file FILE, or TBA_KEY in the environment"
	case http.StatusForbidden:
		f.code, f.next = exitUnauthorised, "use a key whose pool, classes and role allow it: auth.keys in the configuration of the server"
	case http.StatusNotFound:
		f.code, f.next = exitNotFound, "tba status lists the pools"
		if p.Reason == "unknown_period" {
			f.next = "tba budgets lists the closed periods that are kept"
		}
	case http.StatusTooManyRequests:
		f.next = "wait a moment and ask again"
	case http.StatusServiceUnavailable:
		f.next = "tba status"
	}
	return f
}
