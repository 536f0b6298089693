package backends

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

func TestKubernetes(t *testing.T) {
	get := func(address string) func(context.Context) {
		cfg := &rest.Config{Host: address}
		Kubernetes(cfg)
		client, err := dynamic.NewForConfig(cfg)
		require.NoError(t, err)
		pods := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace("default")
		return func(ctx context.Context) { _, _ = pods.Get(ctx, "web-0", metav1.GetOptions{}) }
	}
	answering := func(status int) func(context.Context) {
		body := fmt.Sprintf(`{"apiVersion":"v1","kind":"Status","status":"Failure","code":%d}`, status)
		return get(backend(t, status, http.Header{"Content-Type": {"application/json"}}, body).URL)
	}
	assert.Equal(t, mistake, judge(t, answering(403)))
	assert.Equal(t, mistake, judge(t, answering(404)))
	assert.Equal(t, counted, judge(t, answering(500)))
	assert.Equal(t, counted, judge(t, answering(503)))
	assert.Equal(t, counted, judge(t, get("http://"+refusing(t))))
}
