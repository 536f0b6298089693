package servers_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/seed8d1e2389/resilience"
	redisfleet "github.com/seed8d1e2389/resilience/adapters/redis"
	"github.com/stretchr/testify/require"
)

// rights is what doc.go says that a user needs.
func rights(t *testing.T) []any {
	data, err := os.ReadFile("../doc.go")
	require.NoError(t, err)
	_, rule, ok := strings.Cut(string(data), "//\t~resilience:")
	require.True(t, ok)
	rule, _, _ = strings.Cut(rule, "\n//\n")
	rule = strings.NewReplacer("{NAMESPACE}", "{test}", "//", "").Replace("~resilience:" + rule)

	var all []any
	for word := range strings.FieldsSeq(rule) {
		all = append(all, word)
	}
	return all
}

// join joins the fleet "test" with a guard that has nothing to say.
func join(t *testing.T, client redis.UniversalClient) (*redisfleet.Fleet, error) {
	return redisfleet.Join(t.Context(), client, newGuard(t, resilience.Config{}), redisfleet.Config{Namespace: "test"})
}

// A guard need not list its tools, and then has no configurations to compare.
func TestGuardWithoutListedToolsIsConnected(t *testing.T) {
	t.Parallel()
	log := new(record)
	guard, err := resilience.New(resilience.Config{Log: slog.New(slog.NewTextHandler(log, nil))})
	require.NoError(t, err)
	fleet, err := redisfleet.Join(t.Context(), newClient(t, startServer(t).addr), guard, redisfleet.Config{Namespace: "test"})
	require.NoError(t, err)
	eventually(t, "compared", func() bool { return fleet.Health().Connected || log.count("can't be reached") > 0 })
	require.NoError(t, guard.Flush(t.Context()))
	require.Zero(t, log.count("can't be reached"))
	require.NoError(t, fleet.Leave(t.Context()))
}

func asUser(t *testing.T, addr, password string) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: addr, Username: "member", Password: password})
	t.Cleanup(func() { client.Close() })
	return client
}

func TestRightsOfAUser(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.do(append([]any{"ACL", "SETUSER", "member", "on", ">secret"}, rights(t)...)...)
	b := new(backend)
	all := joinAll(t, 2, b, resilience.BreakerConfig{Cooldown: time.Second}, func() redis.UniversalClient {
		return asUser(t, s.addr, "secret")
	})

	b.broken.Store(true)
	all[0].open()
	all[1].open()
	agree(t, all, resilience.StateOpen)
	b.broken.Store(false)
	eventually(t, "the probe succeeds", func() bool { return all[0].search() == nil })
	agree(t, all, resilience.StateClosed)
	require.NoError(t, all[0].fleet.Isolate(t.Context(), "search", "maintenance"))
	agree(t, all, resilience.StateIsolated)
	require.NoError(t, all[0].fleet.Reset(t.Context(), "search"))
	agree(t, all, resilience.StateClosed)
	for _, m := range all {
		require.NoError(t, m.fleet.Leave(t.Context()))
		require.Zero(t, m.log.count("reached"), "no command was refused")
	}
	require.Equal(t, "[]", s.do("ACL", "LOG"))
}

// A user of another database than 0 needs one right more.
func TestRightsOfAUserOfAnotherDatabase(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.do(append([]any{"ACL", "SETUSER", "member", "on", ">secret"}, rights(t)...)...)
	client := redis.NewClient(&redis.Options{Addr: s.addr, Username: "member", Password: "secret", DB: 1})
	t.Cleanup(func() { client.Close() })
	_, err := join(t, client)
	require.ErrorContains(t, err, "select")

	s.do("ACL", "SETUSER", "member", "+select")
	fleet, err := join(t, client)
	require.NoError(t, err)
	require.NoError(t, fleet.Leave(t.Context()))
}

// TestJoinIsRefused takes away the rights one by one: Join says so, rather than a call in an outage.
func TestJoinIsRefused(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	refused := func(t *testing.T, password string) {
		_, err := join(t, asUser(t, s.addr, password))
		require.Error(t, err)
		t.Log(err)
	}
	t.Run("no user", func(t *testing.T) { refused(t, "secret") })

	all := rights(t)
	for i, right := range all {
		t.Run("without "+right.(string), func(t *testing.T) {
			s.do("SCRIPT", "FLUSH")
			s.do(append(append([]any{"ACL", "SETUSER", "member", "reset", "on", ">secret"}, all[:i]...), all[i+1:]...)...)
			refused(t, "secret")
		})
	}
	t.Run("wrong password", func(t *testing.T) { refused(t, "guessed") })
	t.Run("no password", func(t *testing.T) {
		s.do("CONFIG", "SET", "requirepass", "secret")
		_, err := join(t, newClient(t, s.addr))
		require.ErrorContains(t, err, "NOAUTH")
	})
}

// A third member, whose own calls have not failed, shows in these tests that the fleet has opened the breaker.
func TestJoinWithoutRedis(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	b := new(backend)
	all := joinAll(t, 3, b, resilience.BreakerConfig{Cooldown: time.Hour}, to(t, s.addr))
	b.broken.Store(true)
	all[0].open()
	all[1].open()
	agree(t, all, resilience.StateOpen)

	for _, frozen := range []bool{false, true} {
		if frozen {
			s.freeze()
		} else {
			s.kill()
		}
		start := time.Now()
		m := newMember(t, b, resilience.BreakerConfig{Cooldown: time.Hour}).join(newClient(t, s.addr))
		t.Logf("frozen: %t; Join returned after %s", frozen, round(time.Since(start)))
		require.Greater(t, time.Since(start), 1900*time.Millisecond)
		require.False(t, m.fleet.Health().Connected)
		require.Error(t, m.fleet.Health().Error)
		require.Equal(t, resilience.StateClosed, m.state())

		if frozen {
			s.thaw()
		} else {
			s.start()
		}
		agree(t, []*member{m}, resilience.StateOpen)
	}
}

// TestJoinWaitsForRedis starts Redis while Join waits.
func TestJoinWaitsForRedis(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	b := new(backend)
	all := joinAll(t, 3, b, resilience.BreakerConfig{Cooldown: time.Hour}, to(t, s.addr))
	b.broken.Store(true)
	all[0].open()
	all[1].open()
	agree(t, all, resilience.StateOpen)

	s.freeze()
	time.AfterFunc(time.Second, s.thaw)
	m := newMember(t, b, resilience.BreakerConfig{Cooldown: time.Hour}).join(newClient(t, s.addr))
	require.Equal(t, resilience.StateOpen, m.state())
}

func TestNewcomerKnowsWhichBreakersAreOpen(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	b := new(backend)
	all := joinAll(t, 3, b, resilience.BreakerConfig{Cooldown: time.Hour}, to(t, s.addr))
	b.broken.Store(true)
	all[0].open()
	all[1].open()
	agree(t, all, resilience.StateOpen)

	m := newMember(t, b, resilience.BreakerConfig{Cooldown: time.Hour}).join(newClient(t, s.addr))
	before := b.requests.Load()
	err := m.search()
	require.ErrorIs(t, err, resilience.CodeCircuitOpen)
	require.Equal(t, before, b.requests.Load())
	require.InDelta(t, time.Hour, resilience.AsError("search", err).RetryAfter, float64(time.Minute))
}

func TestNamespacesAreApart(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	b := new(backend)
	all := joinAll(t, 3, b, resilience.BreakerConfig{}, to(t, s.addr))
	stranger := newMember(t, b, resilience.BreakerConfig{})
	fleet, err := redisfleet.Join(t.Context(), newClient(t, s.addr), stranger.guard, redisfleet.Config{Namespace: "tes"})
	require.NoError(t, err)
	defer fleet.Leave(t.Context())

	b.broken.Store(true)
	all[0].open()
	all[1].open()
	agree(t, all, resilience.StateOpen)
	require.Equal(t, 1, fleet.Health().Members)
	newcomer := newMember(t, b, resilience.BreakerConfig{})
	other, err := redisfleet.Join(t.Context(), newClient(t, s.addr), newcomer.guard, redisfleet.Config{Namespace: "tes"})
	require.NoError(t, err)
	defer other.Leave(t.Context())
	require.Equal(t, resilience.StateClosed, stranger.state())
	require.Equal(t, resilience.StateClosed, newcomer.state())
}

// TestNothingLeaks joins and leaves many times, also without Redis.
func TestNothingLeaks(t *testing.T) {
	s := startServer(t)
	before := runtime.NumGoroutine()
	for i := range 10 {
		if i == 9 {
			require.Equal(t, "0", s.do("EXISTS", "resilience:{test}:members"))
			s.freeze()
		}
		client := redis.NewClient(&redis.Options{Addr: s.addr})
		fleet, err := join(t, client)
		require.NoError(t, err)
		start := time.Now()
		require.NoError(t, fleet.Leave(t.Context()))
		t.Logf("Leave took %s", round(time.Since(start)))
		require.NoError(t, client.Close())
	}
	ended := eventually(t, "goroutines end", func() bool { return runtime.NumGoroutine() <= before })
	t.Logf("goroutines end after %s", round(ended))

	s.thaw()
	eventually(t, "connections end", func() bool { return strings.Count(s.do("CLIENT", "LIST"), "\n") == 1 })
}

func TestTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	roots := writeCertificate(t, dir)
	s := startServer(t)
	addr := freeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	s.do("CONFIG", "SET", "tls-cert-file", filepath.Join(dir, "cert"), "tls-key-file", filepath.Join(dir, "key"),
		"tls-ca-cert-file", filepath.Join(dir, "cert"), "tls-auth-clients", "no", "tls-port", port)

	b := new(backend)
	all := joinAll(t, 2, b, resilience.BreakerConfig{}, func() redis.UniversalClient {
		client := redis.NewClient(&redis.Options{Addr: addr, TLSConfig: &tls.Config{RootCAs: roots}})
		t.Cleanup(func() { client.Close() })
		return client
	})
	b.broken.Store(true)
	all[0].open()
	all[1].open()
	agree(t, all, resilience.StateOpen)
}

// writeCertificate writes a certificate for 127.0.0.1 and its key, and returns who trusts it.
func writeCertificate(t *testing.T, dir string) *x509.CertPool {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)

	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cert"), text, 0o600))
	secret := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	require.NoError(t, os.WriteFile(filepath.Join(dir, "key"), secret, 0o600))
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(text))
	return roots
}
