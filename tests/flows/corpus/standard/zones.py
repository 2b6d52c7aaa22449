import datetime
import time
import zoneinfo

for name in ("Europe/Berlin", "America/New_York", "Asia/Kolkata", "UTC"):
    moment = datetime.datetime(2024, 7, 1, 12, tzinfo=zoneinfo.ZoneInfo(name))
    print(name, moment.isoformat(), moment.astimezone(datetime.UTC).isoformat(), moment.tzname())
print(len(zoneinfo.available_timezones()) > 400)
print(datetime.datetime.fromtimestamp(0, datetime.UTC), time.strftime("%Y", time.gmtime(0)))
print(datetime.date(2024, 2, 29) + datetime.timedelta(days=366), datetime.date(2024, 1, 1).isocalendar())
print(datetime.datetime.strptime("3 Mar 2021", "%d %b %Y"))
