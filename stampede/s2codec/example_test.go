package s2codec_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/redisstore"
	"github.com/herdgate/herdgate/stampede/s2codec"
)

func Example() {
	m, err := miniredis.Run() // yours is there already
	if err != nil {
		panic(err)
	}
	defer m.Close()
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()
	store, err := redisstore.New(rdb, nil)
	if err != nil {
		panic(err)
	}
	defer store.Close()

	codec, err := s2codec.New(stampede.Msgpack, nil) // from 1 KiB on
	if err != nil {
		panic(err)
	}
	reports, err := stampede.New[string](store, &stampede.Options{
		Name:    "report",
		Version: "s2", // pods that do not compress yet keep to their own entries
		Codec:   codec,
	})
	if err != nil {
		panic(err)
	}

	ctx := context.Background()
	report, err := reports.Get(ctx, "2026-11", func(context.Context) (string, error) {
		return strings.Repeat("lamp;1900;in stock\n", 1000), nil
	})
	stored, _ := m.Get(m.Keys()[0])
	fmt.Println(len(report), "bytes, stored in less than 500:", len(stored) < 500, err)
	// Output: 19000 bytes, stored in less than 500: true <nil>
}
