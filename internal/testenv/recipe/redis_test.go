package recipe

import "testing"

func TestParseRedisInfo(t *testing.T) {
	const valkey = "# Server\r\nredis_version:7.2.4\r\n" +
		"server_name:valkey\r\nvalkey_version:9.1.2\r\n"
	for info, want := range map[string]string{
		"# Server\r\nredis_version:8.0.6\r\n": "Redis 8.0.6",
		valkey:                                "Valkey 9.1.2",
		"redis_version:7.4.0\r\ndragonfly_version:df-v1.30.0\r\n": "Dragonfly 1.30.0",
		"": "",
	} {
		if got, err := parseRedisInfo(info); got != want || (err == nil) != (want != "") {
			t.Errorf("parseRedisInfo(%q) = %q, %v", info, got, err)
		}
	}
}

func TestRedisURL(t *testing.T) {
	r := Redis("--requirepass", "a:b@c")
	if got, want := r.URLOf("h:1"), "redis://:a%3Ab%40c@h:1"; got != want {
		t.Errorf("URLOf = %s, want %s", got, want)
	}
}
